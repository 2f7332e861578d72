"""Groups of calls that a device may do by fewer launches, and the same with a reader in between."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from flatwake_kernels import ops
from flatwake_kernels.backend import Backend
from flatwake_kernels.buffer import Buffer
from flatwake_kernels.declaration import Op
from flatwake_kernels.dtype import Dtype
from flatwake_kernels.native import NativePlan
from op_bench import SEED, Bench, decode, sequence_rows

BF16 = Dtype.BF16
WIDE, HALF, FEW = (96, 416, 100), (768, 1536, 2200), (2208, 64, 48)
"""Columns of x, of a normed row (three chunks and a rest, in WIDE; a turn and a half of 32 lanes'
or of 64 lanes' waves, in HALF), and outputs: a device of four units has more panels than units in
each layer of WIDE, and no more in those of FEW."""
CHANNELS, TAPS, SLOTS = 48, 4, 70


@dataclass(frozen=True)
class Found:
    """What a group of calls left, by name, and its launches."""

    values: dict[str, np.ndarray]
    launches: int


def product_norm_product(
    backend: Backend, lengths: list[int], kind: str, sizes: tuple[int, int, int] = WIDE, *,
    apart: bool,
) -> Found:  # fmt: skip
    """A layer onto its residual, a norm, the product of that (`linear`, `gate_up` or `conv`, which
    convolves it), and a norm that overwrites the first one's; `apart` reads normed rows in between.

    `lengths` are the rows of each sequence; row r is the same whatever comes after it.
    """
    inputs, width, outputs = sizes
    bench = Bench(backend, SEED)
    count, live = sum(lengths) + 1, bench.ints([sum(lengths)])
    x, hidden = (
        bench.given(np.random.default_rng(i).standard_normal((64, n), np.float32)[:count], BF16)
        for i, n in enumerate((inputs, width))
    )
    normed = bench.empty(count, width, dtype=BF16)
    weight = bench.normal(width)
    norm = {
        "x": hidden,
        "y": normed,
        "weight": weight,
        "live": live,
        "eps": 1e-5,
        "weight_offset": 1.0,
    }
    y = bench.empty(count, outputs, dtype=BF16)
    layer = bench.layer(2 * outputs if kind == "gate_up" else outputs, width, BF16)
    product = ops.GateUpSilu if kind == "gate_up" else ops.Linear
    first = ops.Linear(
        x=x, y=hidden, residual=hidden, weight=bench.layer(width, inputs, BF16), live=live
    )
    calls: list[Op] = [first, ops.RmsNorm(**norm), product(x=normed, y=y, weight=layer, live=live)]
    left = {"hidden": hidden, "y": y}
    if kind == "conv":
        mixed = bench.empty(count, CHANNELS, dtype=BF16)
        state = np.random.default_rng(2).standard_normal((SLOTS, CHANNELS, TAPS - 1), np.float32)
        left |= {"mixed": mixed, "state": bench.given(state)}
        calls.append(
            ops.ConvStep(
                x=y, y=mixed, weight=bench.normal(CHANNELS, TAPS), state=left["state"],
                **_slots(bench, lengths, count),
            )
        )  # fmt: skip
    if apart:
        left["normed"] = bench.empty(count, width, dtype=BF16)
        index = bench.ints(np.arange(count))
        calls.append(ops.GatherRows(x=normed, y=left["normed"], index=index))
    calls.append(ops.RmsNorm(**norm))
    return _run(backend, bench, calls, left, sum(lengths))


def combine_then_gate(backend: Backend, *, apart: bool) -> Found:
    """attention_combine and output_gate on its result; `apart` writes that elsewhere."""
    bench = Bench(backend, SEED)
    rows, heads, head_dim, splits = 3, 4, 24, 3
    width = heads * head_dim
    ml = bench.random.standard_normal((rows, heads, splits, 2), np.float32)
    ml[..., 1] = np.abs(ml[..., 1]) + 0.1
    y = bench.empty(rows, heads, head_dim, dtype=BF16)
    gated = bench.empty(rows, width, dtype=BF16) if apart else y.view(rows, width)
    calls = [
        ops.AttentionCombine(
            partial=bench.normal(rows, heads, splits, head_dim), partial_ml=bench.given(ml), y=y,
            row_length=bench.ints([90, 1, 40]), split_positions=32,
        ),
        ops.OutputGate(
            x=y.view(rows, width), gate=bench.normal(rows, width + 30, dtype=BF16), y=gated,
            live=bench.ints([rows]), gate_offset=8,
        ),
    ]  # fmt: skip
    return _run(backend, bench, calls, {"y": gated}, rows)


def step_then_norm(
    backend: Backend, lengths: list[int], dtype: Dtype = BF16, *, value_dim: int = 128,
    key_dim: int = 128, k_heads: int = 1, head_map: int = 0, apart: bool,
) -> Found:  # fmt: skip
    """gdn_step and its heads' gated norm; `apart` norms a copy of what the step gives.

    `lengths` are the rows of each sequence; row r is the same whatever comes after it.
    """
    bench = Bench(backend, SEED)
    v_heads, count = 2 * k_heads, sum(lengths) + 1
    width, keys = v_heads * value_dim, 2 * k_heads * key_dim
    shapes = (
        (64, keys + width),
        (64, 5 + width + 2 * v_heads),
        (SLOTS, v_heads, key_dim, value_dim),
    )
    qkv, packed, state = (
        np.random.default_rng(i).standard_normal(shape, np.float32)
        for i, shape in enumerate(shapes)
    )
    gates = bench.given(packed[:count], dtype)
    y, gated = (bench.empty(count, v_heads, value_dim, dtype=dtype) for _ in range(2))
    left = {"gated": gated, "y": y, "state": bench.given(state)}
    calls: list[Op] = [
        ops.GdnStep(
            qkv=bench.given(qkv[:count], dtype), ab=gates,
            negative_a=bench.given(-np.abs(bench.random.standard_normal(v_heads)) - 0.05),
            dt_bias=bench.normal(v_heads), state=left["state"], y=y, k_heads=k_heads,
            a_offset=5 + width, b_offset=5 + width + v_heads, head_map=head_map,
            **_slots(bench, lengths, count),
        )
    ]  # fmt: skip
    if apart:
        index, copied = bench.ints(np.arange(count)), bench.empty(count, width, dtype=dtype)
        calls.append(ops.GatherRows(x=y.view(count, width), y=copied, index=index))
    calls.append(
        ops.GatedRmsNorm(
            x=copied.view(count, v_heads, value_dim) if apart else y, gate=gates, y=gated,
            weight=bench.normal(value_dim), live=bench.ints([sum(lengths)]), gate_offset=5,
            eps=1e-5,
        )
    )  # fmt: skip
    return _run(backend, bench, calls, left, sum(lengths))


def _slots(bench: Bench, lengths: list[int], rows: int) -> dict[str, Buffer]:
    """Sequence i reads slot i + 1 and writes it, but the second one writes the last slot."""
    arrays = sequence_rows([list(range(1, n + 1)) for n in lengths], rows)
    slots = {"slot_in": np.zeros(rows, np.int32), "slot_out": np.zeros(rows, np.int32)}
    for i, count in enumerate(lengths):
        first = arrays["first_row"][i]
        slots["slot_in"][i] = i + 1
        slots["slot_out"][first : first + count] = SLOTS - 1 if i == 1 else i + 1
    names = ("first_row", "row_count")
    return {n: bench.ints(v) for n, v in (*((n, arrays[n]) for n in names), *slots.items())}


def _run(
    backend: Backend, bench: Bench, calls: list[Op], left: dict[str, Buffer], live: int
) -> Found:
    with backend.record() as plan:
        for call in calls:
            plan.add(call)
    plan.run()
    bench.check_guards()
    rows = {n: decode(b) if n == "state" else decode(b)[:live] for n, b in left.items()}
    return Found(rows, plan.launches() if isinstance(plan, NativePlan) else 0)
