"""Cases of ops that take each row by itself: embedding, gathering, norms, sums over ranks."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from flatwake_kernels import ops
from flatwake_kernels.declaration import Op
from flatwake_kernels.dtype import Dtype
from op_bench import FLOATS, QUANTS, Bench
from op_case import Case, rounding

F32, F16, BF16 = Dtype.F32, Dtype.F16, Dtype.BF16


def embedding(b: Bench, dtype: Dtype, weight: Dtype, rows: int = 7, live: int = 5) -> Op:
    width = 256
    table = b.layer(37, width, weight)
    return ops.Embedding(
        y=b.empty(rows, width, dtype=dtype),
        row_id=b.ints(b.random.integers(0, 37, rows)),
        live=b.ints([live]),
        table=table,
    )


def gather_rows(b: Bench, dtype: Dtype) -> Op:
    x = b.normal(9, 33, dtype=dtype)
    index = b.ints([3, -1, 0, 8, 8])
    return ops.GatherRows(x=x, y=b.empty(5, 33, dtype=dtype), index=index)


def rms_norm(b: Bench, width: int, dtype: Dtype, offset: float) -> Op:
    return ops.RmsNorm(
        x=b.rows(3, 5, width, dtype=dtype),
        y=b.empty(5, width, dtype=dtype),
        weight=b.normal(width),
        live=b.ints([3]),
        eps=1e-5,
        weight_offset=offset,
    )


def add_rms_norm(b: Bench, width: int, dtype: Dtype) -> Op:
    return ops.AddRmsNorm(
        x=b.rows(4, 5, width, dtype=dtype),
        residual=b.rows(4, 5, width, dtype=dtype),
        y=b.empty(5, width, dtype=dtype),
        weight=b.normal(width),
        live=b.ints([4]),
        eps=1e-6,
        weight_offset=1.0,
    )


def gated_rms_norm(b: Bench, dtype: Dtype) -> Op:
    heads, width, stride = 3, 40, 130
    return ops.GatedRmsNorm(
        x=b.rows(2, 3, heads, width, dtype=dtype),
        gate=b.rows(2, 3, stride, dtype=dtype),
        y=b.empty(3, heads, width, dtype=dtype),
        weight=b.normal(width),
        live=b.ints([2]),
        gate_offset=7,
        eps=1e-6,
    )


def all_reduce(b: Bench) -> Op:
    return ops.AllReduce(x=b.rows(2, 3, 17), live=b.ints([2]))


def row_cases() -> Iterator[Case]:
    for dtype in FLOATS:
        for weight in (F32, F16, BF16, *QUANTS):
            yield Case(f"embedding-{weight.name}-{dtype.name}", partial(
                embedding, dtype=dtype, weight=weight), rounding(dtype, 0))  # fmt: skip
        yield Case(f"gather-rows-{dtype.name}", partial(gather_rows, dtype=dtype), 0)
        for width in (1, 37, 576):
            yield Case(f"rms-norm-{dtype.name}-{width}", partial(
                rms_norm, width=width, dtype=dtype, offset=1.0), rounding(dtype))  # fmt: skip
        yield Case(f"add-rms-norm-{dtype.name}", partial(
            add_rms_norm, width=75, dtype=dtype), rounding(dtype))  # fmt: skip
        yield Case(f"gated-rms-norm-{dtype.name}", partial(
            gated_rms_norm, dtype=dtype), rounding(dtype))  # fmt: skip
    yield Case("all-reduce", all_reduce, 0)
