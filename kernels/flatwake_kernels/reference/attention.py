"""Attention over the paged KV. Each row alone: its sums depend on its own length."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from flatwake_kernels.ops import BLOCK_TOKENS
from flatwake_kernels.reference.activation import sigmoid
from flatwake_kernels.reference.call import Call
from flatwake_kernels.reference.rounding import widen


def split_length(length: int, splits: int, split_positions: int) -> int:
    """Positions in each part of a row that sees `length` positions."""
    even = -(-length // splits)
    return max(split_positions, -(-even // BLOCK_TOKENS) * BLOCK_TOKENS)


def _seen(call: Call) -> Iterator[tuple[int, np.ndarray, np.ndarray]]:
    """(row, keys, values) of each row that sees something; both `[kv_heads, length, head_dim]`."""
    kv, table, lengths = call.array("kv"), call.array("block_table"), call.array("row_length")
    dtype = call.dtype("kv_dtype")
    for sequence, rows in call.row_ranges():
        most = max((int(lengths[r]) for r in rows), default=0)
        count = min(-(-most // BLOCK_TOKENS), table.shape[1])
        if count <= 0:
            continue
        blocks = table[sequence, :count]
        blocks = np.where((blocks >= 0) & (blocks < kv.shape[1]), blocks, 0)
        # [2, blocks, kv_heads, 16, head_dim] with the positions of all blocks in one axis
        pages = np.moveaxis(kv[:, blocks], 1, 2)
        pages = widen(pages.reshape(2, pages.shape[1], -1, pages.shape[-1]), dtype)
        for row in rows:
            length = min(int(lengths[row]), count * BLOCK_TOKENS)
            if length > 0:
                yield row, pages[0, :, :length], pages[1, :, :length]


def _partial(
    q: np.ndarray, keys: np.ndarray, values: np.ndarray, scale: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Of q `[heads, head_dim]`: Σ exp(s - m) v, likewise, then m and Σ exp(s - m) `[heads]`."""
    kv_heads, _, head_dim = keys.shape
    grouped = q.reshape(kv_heads, -1, head_dim)
    scores = grouped @ keys.transpose(0, 2, 1) * np.float32(scale)
    largest = scores.max(axis=-1, keepdims=True)
    weights = np.exp(scores - largest)
    total = (weights @ values).reshape(q.shape)
    return total, largest.ravel(), weights.sum(axis=-1, dtype=np.float32).ravel()


def attention_decode(call: Call) -> None:
    partial, partial_ml = call.array("partial"), call.array("partial_ml")
    q, scale = call.floats("q"), call.number("scale")
    for row, keys, values in _seen(call):
        length = keys.shape[1]
        step = split_length(length, call.size("splits"), call.size("split_positions"))
        for split, start in enumerate(range(0, length, step)):
            part = slice(start, start + step)
            total, largest, weight = _partial(q[row], keys[:, part], values[:, part], scale)
            partial[row, :, split] = total
            partial_ml[row, :, split, 0] = largest
            partial_ml[row, :, split, 1] = weight


def attention_combine(call: Call) -> None:
    partial, partial_ml = call.array("partial"), call.array("partial_ml")
    splits = call.size("splits")
    for row, length in enumerate(call.array("row_length")):
        if length <= 0:
            call.store("y", np.zeros(partial.shape[1::2], np.float32), row)
            continue
        count = -(-int(length) // split_length(int(length), splits, call.size("split_positions")))
        largest = partial_ml[row, :, :count, 0]
        factor = np.exp(largest - largest.max(axis=-1, keepdims=True))
        weight = (partial_ml[row, :, :count, 1] * factor).sum(axis=-1)
        total = (partial[row, :, :count] * factor[..., None]).sum(axis=1)
        call.store("y", total / weight[:, None], row)


def attention_prefill(call: Call) -> None:
    q, scale = call.floats("q"), call.number("scale")
    for row, keys, values in _seen(call):
        total, _, weight = _partial(q[row], keys, values, scale)
        call.store("y", total / weight[:, None], row)


def output_gate(call: Call) -> None:
    live = call.live
    offset = call.size("gate_offset")
    gate = call.floats("gate", live)[:, offset : offset + call.size("width")]
    call.store("y", call.floats("x", live) * sigmoid(gate), live)
