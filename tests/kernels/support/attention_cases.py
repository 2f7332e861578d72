"""Cases of attention over a paged KV cache, and of what fills it."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np
from flatwake_kernels import ops
from flatwake_kernels.buffer import Buffer
from flatwake_kernels.declaration import Op
from flatwake_kernels.dtype import Dtype
from flatwake_kernels.reference.attention import split_length
from op_bench import FLOATS, UNWRITTEN, Bench, sequence_rows
from op_case import Case, rounding

F32, F16, BF16 = Dtype.F32, Dtype.F16, Dtype.BF16

BLOCKS, TABLE = 64, 24


def paged(b: Bench, lengths: list[list[int]], rows: int) -> tuple[dict[str, Buffer], np.ndarray]:
    """Row buffers, and a table of `[rows, TABLE]` blocks in random order; unused entries are 0."""
    arrays = sequence_rows(lengths, rows)
    table = np.zeros((rows, TABLE), np.int32)
    order = b.random.permutation(np.arange(1, BLOCKS))
    for sequence, seen in enumerate(lengths):
        count = -(-max(seen, default=0) // ops.BLOCK_TOKENS)
        table[sequence, :count], order = order[:count], order[count:]
    buffers = {name: b.ints(values) for name, values in arrays.items()}
    return {**buffers, "block_table": b.ints(table)}, table


def pool(
    b: Bench, kv_heads: int, head_dim: int, dtype: Dtype, lengths: list[list[int]],
    table: np.ndarray,
) -> Buffer:  # fmt: skip
    """KV whose positions that nobody sees are NaN; block 0 is zero."""
    shape = (2, BLOCKS, kv_heads, ops.BLOCK_TOKENS, head_dim)
    values = b.random.standard_normal(shape, np.float32)
    seen = np.zeros((BLOCKS, ops.BLOCK_TOKENS), bool)
    for sequence, row_lengths in enumerate(lengths):
        for position in range(max(row_lengths, default=0)):
            block, offset = divmod(position, ops.BLOCK_TOKENS)
            seen[table[sequence, block], offset] = True
    values[~np.broadcast_to(seen[None, :, None, :, None], shape)] = np.nan
    values[:, 0] = 0
    return b.given(values, dtype)


DECODE = ("row_length", "first_row", "row_count", "block_table")


def attention_decode(
    b: Bench, lengths: list[list[int]], rows: int, *, heads: int = 6, kv_heads: int = 2,
    head_dim: int = 64, dtype: Dtype = F32, kv_dtype: Dtype = F32, splits: int = 4,
    split_positions: int = 64,
) -> Op:  # fmt: skip
    where, table = paged(b, lengths, rows)
    return ops.AttentionDecode(
        q=b.rows(sum(map(len, lengths)), rows, heads, head_dim, dtype=dtype),
        kv=pool(b, kv_heads, head_dim, kv_dtype, lengths, table),
        partial=b.empty(rows, heads, splits, head_dim),
        partial_ml=b.empty(rows, heads, splits, 2),
        split_positions=split_positions,
        scale=head_dim**-0.5,
        **{n: where[n] for n in DECODE},
    )


def attention_combine(
    b: Bench, dtype: Dtype, *, lengths: tuple[int, ...] = (1, 64, 65, 300, 0), head_dim: int = 40,
    splits: int = 4, split_positions: int = 64,
) -> Op:  # fmt: skip
    """Parts that a row doesn't have are NaN."""
    rows = len(lengths)
    partial = b.random.standard_normal((rows, 3, splits, head_dim), np.float32)
    partial_ml = np.abs(b.random.standard_normal((rows, 3, splits, 2), np.float32))
    for row, length in enumerate(lengths):
        part = split_length(length, splits, split_positions)
        partial[row, :, -(-length // part) :] = np.nan
        partial_ml[row, :, -(-length // part) :] = np.nan
    return ops.AttentionCombine(
        partial=b.given(partial),
        partial_ml=b.given(partial_ml),
        y=b.empty(rows, 3, head_dim, dtype=dtype),
        row_length=b.ints(np.array(lengths, np.int32)),
        split_positions=split_positions,
    )


def attention_prefill(
    b: Bench, lengths: list[list[int]], rows: int, *, heads: int = 6, kv_heads: int = 2,
    head_dim: int = 64, dtype: Dtype = F32, kv_dtype: Dtype = F32,
) -> Op:  # fmt: skip
    where, table = paged(b, lengths, rows)
    return ops.AttentionPrefill(
        q=b.rows(sum(map(len, lengths)), rows, heads, head_dim, dtype=dtype),
        kv=pool(b, kv_heads, head_dim, kv_dtype, lengths, table),
        y=b.empty(rows, heads, head_dim, dtype=dtype),
        scale=head_dim**-0.5,
        **{n: where[n] for n in DECODE},
    )


def attention_prefill_faint(b: Bench, dtype: Dtype) -> Op:
    """One weight is e^10 times each of 383 others, which come to a sixtieth of all."""
    lengths = [[384]]
    where, table = paged(b, lengths, 1)
    q = np.zeros((1, 1, 64), np.float32)
    kv = np.zeros((2, BLOCKS, 1, ops.BLOCK_TOKENS, 64), np.float32)
    q[..., 0], kv[0, table[0, 0], 0, 0, 0] = 8, 10
    kv[1, 1:] = 1 + 0.1 * b.random.standard_normal(kv[1, 1:].shape, np.float32)
    return ops.AttentionPrefill(
        q=b.given(q, dtype),
        kv=b.given(kv, dtype),
        y=b.empty(1, 1, 64, dtype=dtype),
        scale=0.125,
        **{n: where[n] for n in DECODE},
    )


def output_gate(b: Bench, dtype: Dtype) -> Op:
    return ops.OutputGate(
        x=b.rows(3, 4, 75, dtype=dtype),
        gate=b.rows(3, 4, 160, dtype=dtype),
        y=b.empty(4, 75, dtype=dtype),
        live=b.ints([3]),
        gate_offset=80,
    )


def rope_write(
    b: Bench, *, heads: int = 6, kv_heads: int = 2, head_dim: int = 64, half: int = 32,
    pairing: int = 0, normed: bool = False, dtype: Dtype = F32, kv_dtype: Dtype = F32,
) -> Op:  # fmt: skip
    lengths = [[1], [16, 17, 18], [], [300]]
    rows, live = 8, 5
    where, _ = paged(b, lengths, rows)
    context, packed = 384, (heads + 2 * kv_heads) * head_dim
    angles = b.random.uniform(-3, 3, (context, half)).astype(np.float32)
    kv = np.full((2, BLOCKS, kv_heads, ops.BLOCK_TOKENS, head_dim), UNWRITTEN, np.float32)
    kv[:, 0] = 0
    return ops.QkNormRopeWrite(
        projection=b.rows(live, rows, packed + 11, dtype=dtype),
        q=b.empty(rows, heads, head_dim, dtype=dtype),
        kv=b.given(kv, kv_dtype),
        q_norm=b.normal(head_dim) if normed else None,
        k_norm=b.normal(head_dim) if normed else None,
        rope=b.given(np.stack([np.cos(angles), np.sin(angles)], axis=1)),
        live=b.ints([live]),
        q_offset=3,
        k_offset=3 + heads * head_dim,
        v_offset=3 + (heads + kv_heads) * head_dim,
        pairing=pairing,
        eps=1e-6,
        weight_offset=1.0 if normed else 0.0,
        **{n: where[n] for n in ("row_position", "row_length", "row_sequence", "block_table")},
    )


def rope_write_outside(b: Bench) -> Op:
    """Positions past the table, blocks past the pool and block 0: nothing is written."""
    kv = np.full((2, 4, 1, ops.BLOCK_TOKENS, 32), UNWRITTEN, np.float32)
    kv[:, 0] = 0
    angles = b.random.uniform(-3, 3, (64, 16)).astype(np.float32)
    return ops.QkNormRopeWrite(
        projection=b.normal(4, 96),
        q=b.empty(4, 1, 32),
        kv=b.given(kv),
        rope=b.given(np.stack([np.cos(angles), np.sin(angles)], axis=1)),
        row_position=b.ints([40, 3, 20, 17]),
        row_length=b.ints([41, 4, 21, 18]),
        row_sequence=b.ints([0, 1, 1, 0]),
        block_table=b.ints([[1, 2], [0, 99]]),
        live=b.ints([4]),
        k_offset=32,
        v_offset=64,
    )


LENGTHS = [[1], [16], [15, 16, 17, 18], [], [257], [130]]


def attention_cases() -> Iterator[Case]:
    for dtype, kv_dtype in ((F32, F32), (F32, F16), (F32, BF16), (BF16, BF16), (F16, F16)):
        types = {"dtype": dtype, "kv_dtype": kv_dtype}
        name = f"{dtype.name}-{kv_dtype.name}"
        yield Case(f"attention-decode-{name}", partial(
            attention_decode, lengths=LENGTHS, rows=16, **types), 5e-6)  # fmt: skip
        yield Case(f"attention-prefill-{name}", partial(
            attention_prefill, lengths=[list(range(65, 129))], rows=64, **types),
            rounding(dtype, 5e-6))  # fmt: skip
        yield Case(f"rope-write-{name}", partial(rope_write, **types),
                   max(rounding(dtype), rounding(kv_dtype)))  # fmt: skip
        yield Case(f"rope-write-normed-{name}", partial(
            rope_write, half=16, normed=True, **types),
            max(rounding(dtype), rounding(kv_dtype)))  # fmt: skip
    for heads, kv_heads, head_dim in ((1, 1, 32), (9, 3, 64), (8, 1, 80), (4, 2, 256), (5, 5, 36)):
        shape = {"heads": heads, "kv_heads": kv_heads, "head_dim": head_dim}
        yield Case(f"attention-decode-{heads}-{kv_heads}x{head_dim}", partial(
            attention_decode, lengths=LENGTHS, rows=8, **shape), 5e-6)  # fmt: skip
        yield Case(f"attention-prefill-{heads}-{kv_heads}x{head_dim}", partial(
            attention_prefill, lengths=[list(range(1, 38))], rows=64, **shape), 5e-6)  # fmt: skip
    for dtype in (BF16, F16):  # of whole matrix units
        yield Case(f"attention-prefill-{dtype.name}-faint", partial(
            attention_prefill_faint, dtype=dtype), rounding(dtype))  # fmt: skip
        for heads, kv_heads, head_dim in ((6, 3, 64), (7, 1, 128), (8, 2, 256)):
            shape = {"heads": heads, "kv_heads": kv_heads, "head_dim": head_dim}
            yield Case(f"attention-prefill-{dtype.name}-{heads}-{kv_heads}x{head_dim}", partial(
                attention_prefill, lengths=[list(range(65, 103)), [], [1, 2], [300, 301]], rows=48,
                dtype=dtype, kv_dtype=dtype, **shape), rounding(dtype, 5e-6))  # fmt: skip
    yield Case("attention-decode-one-split", partial(
        attention_decode, lengths=[[300], [7]], rows=2, splits=1), 5e-6)  # fmt: skip
    yield Case("attention-decode-many-splits", partial(
        attention_decode, lengths=[[300], [7]], rows=2, splits=32, split_positions=16),
        5e-6)  # fmt: skip
    edges = [[1], [15, 16, 17], [31], [32, 33], [], [64], [65, 66]]
    shapes = ((2, 2, 64), (6, 2, 80), (7, 1, 128), (5, 5, 256), (10, 2, 256))
    for heads, kv_heads, head_dim in shapes:
        yield Case(f"attention-decode-edges-{heads}-{kv_heads}x{head_dim}", partial(
            attention_decode, lengths=edges, rows=12, heads=heads, kv_heads=kv_heads,
            head_dim=head_dim, splits=32, split_positions=32), 5e-6)  # fmt: skip
    for dtype in (BF16, F16):
        yield Case(f"attention-decode-edges-{dtype.name}", partial(
            attention_decode, lengths=edges, rows=12, heads=16, kv_heads=4, head_dim=256,
            dtype=dtype, kv_dtype=dtype, splits=32, split_positions=32), 5e-6)  # fmt: skip
    yield Case("attention-combine-many-splits", partial(
        attention_combine, dtype=F32, lengths=(1, 32, 33, 1024, 1025, 9000, 0), head_dim=256,
        splits=32, split_positions=32))  # fmt: skip
    for dtype in FLOATS:
        yield Case(f"attention-combine-{dtype.name}", partial(attention_combine, dtype=dtype),
                   rounding(dtype))  # fmt: skip
        yield Case(f"output-gate-{dtype.name}", partial(output_gate, dtype=dtype),
                   rounding(dtype))  # fmt: skip
    yield Case("rope-write-pairs", partial(rope_write, pairing=1))
    yield Case("rope-write-odd", partial(rope_write, heads=3, kv_heads=3, head_dim=36, half=9))
    yield Case("rope-write-wide", partial(
        rope_write, heads=3, kv_heads=1, head_dim=256, half=32, normed=True, dtype=BF16,
        kv_dtype=BF16), rounding(BF16))  # fmt: skip
    yield Case("rope-write-wide-pairs", partial(
        rope_write, heads=3, kv_heads=1, head_dim=200, half=100, pairing=1,
        normed=True))  # fmt: skip
    yield Case("rope-write-outside", rope_write_outside)
