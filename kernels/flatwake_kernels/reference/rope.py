"""Norm and rotation of queries and keys, and the write into the paged KV."""

from __future__ import annotations

import numpy as np

from flatwake_kernels.ops import BLOCK_TOKENS
from flatwake_kernels.reference.call import Call
from flatwake_kernels.reference.norm import normalise
from flatwake_kernels.reference.rounding import narrow


def qk_norm_rope_write(call: Call) -> None:
    live = call.live
    heads, kv_heads, head_dim = (call.size(n) for n in ("heads", "kv_heads", "head_dim"))
    rows = np.flatnonzero(call.array("row_length")[live] > 0)
    if not len(rows):
        return
    projection = call.floats("projection", live)[rows]

    def part(offset: str, count: int) -> np.ndarray:
        start = call.size(offset)
        wide = projection[:, start : start + count * head_dim]
        return wide.reshape(len(rows), count, head_dim)

    positions = call.array("row_position")[rows]
    rope = call.array("rope")[np.clip(positions, 0, call.size("context") - 1)]
    pairing = call.size("pairing")
    q = rotate(_normed(call, part("q_offset", heads), "q_norm"), rope, pairing)
    k = rotate(_normed(call, part("k_offset", kv_heads), "k_norm"), rope, pairing)
    call.array("q")[rows] = narrow(q, call.dtype("dtype"))
    _write(call, rows, positions, k, part("v_offset", kv_heads))


def _normed(call: Call, x: np.ndarray, weight: str) -> np.ndarray:
    if not call.has(weight):
        return x
    scale = call.array(weight) + np.float32(call.number("weight_offset"))
    normed: np.ndarray = normalise(x, call.number("eps")) * scale
    return normed


def rotate(x: np.ndarray, rope: np.ndarray, pairing: int) -> np.ndarray:
    """Rotate the first dims of x `[rows, heads, head_dim]` by rope `[rows, 2, half]`.

    Pairs are (i, i + half) for pairing 0 and (2i, 2i + 1) for pairing 1.
    """
    half = rope.shape[-1]
    if pairing == 0:
        first, second = slice(0, half), slice(half, 2 * half)
    else:
        first, second = slice(0, 2 * half, 2), slice(1, 2 * half, 2)
    cosine, sine = rope[:, None, 0], rope[:, None, 1]
    y = x.copy()
    y[..., first] = x[..., first] * cosine - x[..., second] * sine
    y[..., second] = x[..., second] * cosine + x[..., first] * sine
    return y


def _write(
    call: Call, rows: np.ndarray, positions: np.ndarray, k: np.ndarray, v: np.ndarray
) -> None:
    """Into the rows' blocks, but for those outside of the table or the pool, and block 0."""
    kv, table = call.array("kv"), call.array("block_table")
    sequences = call.array("row_sequence")[rows]
    entries = positions // BLOCK_TOKENS
    inside = (entries >= 0) & (entries < table.shape[1])
    inside &= (sequences >= 0) & (sequences < len(table))
    blocks = np.where(
        inside, table[np.where(inside, sequences, 0), np.where(inside, entries, 0)], 0
    )
    inside &= (blocks > 0) & (blocks < kv.shape[1])
    blocks, offsets = blocks[inside], positions[inside] % BLOCK_TOKENS
    dtype = call.dtype("kv_dtype")
    kv[0, blocks, :, offsets] = narrow(k[inside], dtype)
    kv[1, blocks, :, offsets] = narrow(v[inside], dtype)
