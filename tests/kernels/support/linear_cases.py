"""Cases of products with weights of every format."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from flatwake_kernels import ops
from flatwake_kernels.backend import Activations
from flatwake_kernels.declaration import Op
from flatwake_kernels.dtype import Dtype
from op_bench import FLOATS, QUANTS, Bench
from op_case import Case, rounding

F32, F16, BF16 = Dtype.F32, Dtype.F16, Dtype.BF16


def linear(
    b: Bench, *, rows: int, live: int, inputs: int, formats: tuple[Dtype, ...],
    outputs: int = 33, dtype: Dtype = F32, output_dtype: Dtype = F32, bias: bool = False,
    residual: bool = False, activations: Activations = "float", permuted: bool = False,
) -> Op:  # fmt: skip
    weight = b.layer(outputs, inputs, *formats, activations=activations, permuted=permuted)
    total = outputs * len(formats)
    y = b.empty(rows, total, dtype=output_dtype)
    if residual:
        y = b.rows(live, rows, total, dtype=output_dtype)
    return ops.Linear(
        x=b.rows(live, rows, inputs, dtype=dtype),
        y=y,
        weight=weight,
        bias=b.normal(total) if bias else None,
        residual=y if residual else None,
        live=b.ints([live]),
    )


def gate_up_silu(
    b: Bench, *, rows: int, live: int, inputs: int, outputs: int, weight: Dtype,
    dtype: Dtype = F32, activations: Activations = "float",
) -> Op:  # fmt: skip
    return ops.GateUpSilu(
        x=b.rows(live, rows, inputs, dtype=dtype),
        y=b.empty(rows, outputs, dtype=dtype),
        weight=b.layer(outputs, inputs, weight, weight, activations=activations),
        live=b.ints([live]),
    )


def linear_cases() -> Iterator[Case]:
    for format_ in (*FLOATS, *QUANTS):
        for activations in ("float", "int8") if format_.quantised else ("float",):
            for rows, live, inputs in ((1, 1, 256), (8, 5, 512), (3, 3, 1536), (64, 33, 256)):
                yield Case(
                    f"linear-{format_.name}-{activations}-{live}of{rows}x{inputs}",
                    partial(linear, rows=rows, live=live, inputs=inputs, formats=(format_,),
                            activations=activations),
                    5e-6,
                )  # fmt: skip
    for format_ in (F32, Dtype.Q4_0, Dtype.Q4_1, Dtype.Q8_0):
        for inputs in (32, 96, 576):
            yield Case(
                f"linear-{format_.name}-narrow-{inputs}",
                partial(linear, rows=16, live=16, inputs=inputs, formats=(format_,), outputs=1,
                        activations="int8"),
                5e-6,
            )  # fmt: skip
    for dtype in (F16, BF16):
        yield Case(
            f"linear-from-{dtype.name}",
            partial(linear, rows=4, live=3, inputs=256, formats=(BF16,), dtype=dtype,
                    output_dtype=dtype, bias=True, residual=True),
            rounding(dtype),
        )  # fmt: skip
    # Panels for a few units and for more than a device has; columns for every wave, for none, and
    # in a last turn for half of the waves, 32 and 64 lanes wide.
    for outputs, inputs in (
        (40, 4512), (40, 2048), (4900, 160), (100, 1248), (5, 32), (2200, 1536), (100, 768),
    ):  # fmt: skip
        yield Case(
            f"linear-{outputs}x{inputs}",
            partial(linear, rows=9, live=8, inputs=inputs, formats=(BF16,), outputs=outputs,
                    dtype=BF16, output_dtype=BF16, bias=True, residual=True),
            rounding(BF16),
        )  # fmt: skip
    yield Case("linear-odd-columns", partial(linear, rows=4, live=4, inputs=37, formats=(F32, F16)))
    for activations in ("float", "int8"):
        mixed = (Dtype.Q4_K, Dtype.Q6_K, F32, Dtype.Q5_K, Dtype.Q8_0)
        yield Case(
            f"linear-segments-{activations}",
            partial(linear, rows=8, live=6, inputs=512, formats=mixed, outputs=19, bias=True,
                    residual=True, activations=activations, permuted=True),
            5e-6,
        )  # fmt: skip
    for weight in (F32, BF16, *QUANTS):
        for activations in ("float", "int8"):
            yield Case(
                f"gate-up-{weight.name}-{activations}",
                partial(gate_up_silu, rows=8, live=6, inputs=512, outputs=45, weight=weight,
                        activations=activations),
                1e-5,
            )  # fmt: skip
    for outputs in (24, 75):
        yield Case(
            f"gate-up-{outputs}x2208",
            partial(gate_up_silu, rows=3, live=3, inputs=2208, outputs=outputs, weight=F16,
                    dtype=F16),
            rounding(F16),
        )  # fmt: skip
    yield Case(
        "gate-up-chunk",
        partial(gate_up_silu, rows=128, live=100, inputs=256, outputs=48, weight=Dtype.Q4_1,
                activations="int8"),
        1e-5,
    )  # fmt: skip
