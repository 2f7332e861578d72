"""Cases of what keeps a sequence's state in a slot: convolutions and gated delta nets."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np
from flatwake_kernels import ops
from flatwake_kernels.buffer import Buffer
from flatwake_kernels.declaration import Op
from flatwake_kernels.dtype import Dtype
from op_bench import FLOATS, Bench
from op_case import Case, rounding

F32 = Dtype.F32


def conv(b: Bench, op: type[ops.ConvStep], lengths: list[int], rows: int, dtype: Dtype) -> Op:
    channels, taps, slots = 37, 4, 12
    state = b.random.standard_normal((slots, channels, taps - 1), np.float32)
    return op(
        x=b.rows(sum(lengths), rows, channels + 9, dtype=dtype),
        y=b.empty(rows, channels, dtype=dtype),
        weight=b.normal(channels, taps),
        offset=5,
        **_slots(b, state, lengths, rows),
    )


def gdn(
    b: Bench, op: type[ops.GdnStep], lengths: list[int], rows: int, *, head_map: int = 0,
    k_heads: int = 2, v_heads: int = 4, key_dim: int = 32, value_dim: int = 48,
    dtype: Dtype = F32,
) -> Op:  # fmt: skip
    state = b.random.standard_normal((12, v_heads, key_dim, value_dim), np.float32)
    live = sum(lengths)
    return op(
        qkv=b.rows(live, rows, 2 * k_heads * key_dim + v_heads * value_dim, dtype=dtype),
        ab=b.rows(live, rows, 2 * v_heads + 3, dtype=dtype),
        negative_a=b.given(-np.abs(b.random.standard_normal(v_heads)) - 0.05),
        dt_bias=b.normal(v_heads),
        y=b.empty(rows, v_heads, value_dim, dtype=dtype),
        k_heads=k_heads,
        a_offset=2,
        b_offset=3 + v_heads,
        head_map=head_map,
        **_slots(b, state, lengths, rows),
    )


def _slots(b: Bench, state: np.ndarray, lengths: list[int], rows: int) -> dict[str, Buffer]:
    """Sequence i reads slot i + 1; its rows write there too, but the second to slot 10."""
    state[0] = 0
    first_row, row_count = np.zeros(rows, np.int32), np.zeros(rows, np.int32)
    slot_in, slot_out = np.zeros(rows, np.int32), np.zeros(rows, np.int32)
    row = 0
    for sequence, count in enumerate(lengths):
        first_row[sequence], row_count[sequence] = row, count
        slot_in[sequence] = sequence + 1
        slot_out[row : row + count] = sequence + 1
        if sequence == 1 and count:
            slot_out[row + count - 1] = 10
        row += count
    return {
        "state": b.given(state),
        "first_row": b.ints(first_row),
        "row_count": b.ints(row_count),
        "slot_in": b.ints(slot_in),
        "slot_out": b.ints(slot_out),
    }


def slot_copy(b: Bench) -> Op:
    state = b.ints(b.random.integers(-(2**31), 2**31, (6, 35)))
    return ops.SlotCopy(state=state, source=b.ints([1, 2, 3, 5]), target=b.ints([4, 0, -1, 1]))


def slot_zero(b: Bench) -> Op:
    state = b.ints(b.random.integers(-(2**31), 2**31, (6, 35)))
    return ops.SlotZero(state=state, target=b.ints([4, 0, -1, 5]))


def recurrent_cases() -> Iterator[Case]:
    for dtype in FLOATS:
        yield Case(f"conv-step-{dtype.name}", partial(
            conv, op=ops.ConvStep, lengths=[1, 5, 0, 1], rows=8, dtype=dtype),
            rounding(dtype))  # fmt: skip
        yield Case(f"gdn-step-{dtype.name}", partial(
            gdn, op=ops.GdnStep, lengths=[1, 5, 0, 1], rows=8, dtype=dtype),
            rounding(dtype, 1e-5), 1e-5)  # fmt: skip
        yield Case(f"gdn-chunk-{dtype.name}", partial(
            gdn, op=ops.GdnChunk, lengths=[150], rows=256, dtype=dtype),
            rounding(dtype, 2e-5), 2e-5)  # fmt: skip
        yield Case(f"gdn-chunk-several-{dtype.name}", partial(
            gdn, op=ops.GdnChunk, lengths=[33, 64, 0, 7], rows=256, dtype=dtype, k_heads=3,
            v_heads=9, key_dim=72, value_dim=40), rounding(dtype, 2e-5), 2e-5)  # fmt: skip
        yield Case(f"gdn-chunk-odd-columns-{dtype.name}", partial(
            gdn, op=ops.GdnChunk, lengths=[45], rows=64, dtype=dtype, k_heads=1, v_heads=8,
            key_dim=128, value_dim=37, head_map=1), rounding(dtype, 2e-5), 2e-5)  # fmt: skip
        yield Case(f"gdn-chunk-narrow-{dtype.name}", partial(
            gdn, op=ops.GdnChunk, lengths=[64], rows=64, dtype=dtype, k_heads=1, v_heads=1,
            key_dim=8, value_dim=5), rounding(dtype, 2e-5), 2e-5)  # fmt: skip
    yield Case("conv-chunk", partial(
        conv, op=ops.ConvChunk, lengths=[19], rows=32, dtype=F32))  # fmt: skip
    yield Case("conv-chunk-short", partial(
        conv, op=ops.ConvChunk, lengths=[2], rows=16, dtype=F32))  # fmt: skip
    yield Case("gdn-step-tiled", partial(
        gdn, op=ops.GdnStep, lengths=[2, 1], rows=3, head_map=1), 1e-5)  # fmt: skip
    yield Case("gdn-step-128", partial(
        gdn, op=ops.GdnStep, lengths=[1], rows=1, k_heads=1, v_heads=2, key_dim=128,
        value_dim=128), 1e-5)  # fmt: skip
    yield Case("gdn-chunk-tiled", partial(
        gdn, op=ops.GdnChunk, lengths=[65], rows=128, head_map=1), 2e-5)  # fmt: skip
    yield Case("gdn-chunk-128", partial(
        gdn, op=ops.GdnChunk, lengths=[64], rows=64, k_heads=1, v_heads=2, key_dim=128,
        value_dim=128), 2e-5)  # fmt: skip
    yield Case("slot-copy", slot_copy)
    yield Case("slot-zero", slot_zero)
