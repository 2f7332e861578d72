"""Weight formats as float32: GGML's block layouts, read from their C structs.

Each function takes uint8 `[rows, blocks, block_bytes]` and gives float32 `[rows, blocks, block]`.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from flatwake_kernels.dtype import Dtype
from flatwake_kernels.reference.rounding import widen


def dequantise(data: np.ndarray, dtype: Dtype, columns: int) -> np.ndarray:
    """uint8 `[rows, row_bytes]` of a format as float32 `[rows, columns]`."""
    rows = len(data)
    used = np.ascontiguousarray(data[:, : dtype.bytes(columns)])
    if not dtype.quantised:
        return widen(used.view(dtype.numpy), dtype)
    blocks = used.reshape(rows, columns // dtype.block, dtype.block_bytes)
    return _FORMATS[dtype](blocks).reshape(rows, columns)


def _half(blocks: np.ndarray, at: int) -> np.ndarray:
    """The float16 at byte `at` of each block, `[rows, blocks, 1]`."""
    half = np.ascontiguousarray(blocks[..., at : at + 2]).view(np.float16)
    value: np.ndarray = half.astype(np.float32)
    return value


def _nibbles(packed: np.ndarray) -> np.ndarray:
    """Low nibbles of all bytes, then the high ones, along the last axis."""
    return np.concatenate([packed & 15, packed >> 4], axis=-1)


def _q4_0(blocks: np.ndarray) -> np.ndarray:
    quants = _nibbles(blocks[..., 2:]).astype(np.int8) - np.int8(8)
    value: np.ndarray = _half(blocks, 0) * quants
    return value


def _q4_1(blocks: np.ndarray) -> np.ndarray:
    value: np.ndarray = _half(blocks, 0) * _nibbles(blocks[..., 4:]) + _half(blocks, 2)
    return value


def _q8_0(blocks: np.ndarray) -> np.ndarray:
    value: np.ndarray = _half(blocks, 0) * blocks[..., 2:].view(np.int8)
    return value


def _k_scales(packed: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The 6-bit scales and minima of eight sub-blocks, from 12 bytes: `[..., 8]` each.

    The first four lie in the low six bits of bytes 0-3 (scales) and 4-7 (minima). The last four
    have their low nibbles in bytes 8-11 and their high two bits above the first four.
    """
    low, high, rest = packed[..., 0:4], packed[..., 4:8], packed[..., 8:12]
    scales = np.concatenate([low & 63, (rest & 15) | (low >> 6 << 4)], axis=-1)
    minima = np.concatenate([high & 63, (rest >> 4) | (high >> 6 << 4)], axis=-1)
    return scales, minima


def _k_values(blocks: np.ndarray, quants: np.ndarray) -> np.ndarray:
    """d · scale · quant - dmin · minimum for quants `[..., 8, 32]`."""
    scales, minima = _k_scales(blocks[..., 4:16])
    scale = (_half(blocks, 0) * scales)[..., None]
    minimum = (_half(blocks, 2) * minima)[..., None]
    value: np.ndarray = scale * quants - minimum
    return value


def _k_nibbles(packed: np.ndarray) -> np.ndarray:
    """128 bytes as `[..., 8, 32]`: each 32 bytes hold a sub-block's low and the next one's high."""
    pairs = packed.reshape(*packed.shape[:-1], 4, 1, 32)
    shifts = np.array([0, 4], np.uint8)[:, None]
    return (pairs >> shifts & 15).reshape(*packed.shape[:-1], 8, 32)


def _q4_k(blocks: np.ndarray) -> np.ndarray:
    return _k_values(blocks, _k_nibbles(blocks[..., 16:144]))


def _q5_k(blocks: np.ndarray) -> np.ndarray:
    bits = np.arange(8, dtype=np.uint8)[:, None]
    fifth = blocks[..., 16:48][..., None, :] >> bits & 1
    return _k_values(blocks, _k_nibbles(blocks[..., 48:176]) | fifth << 4)


def _q6_k(blocks: np.ndarray) -> np.ndarray:
    """Sixteen scales of 16 elements; each half of 128 keeps 4 × 32 quants in 64 + 32 bytes."""
    lead = blocks.shape[:-1]
    low = blocks[..., 0:128].reshape(*lead, 2, 1, 64)
    low = (low >> np.array([0, 4], np.uint8)[:, None] & 15).reshape(*lead, 2, 4, 32)
    high = blocks[..., 128:192].reshape(*lead, 2, 1, 32)
    high = high >> np.array([0, 2, 4, 6], np.uint8)[:, None] & 3
    quants = (low | high << 4).astype(np.int8) - np.int8(32)
    scales = blocks[..., 192:208].view(np.int8)
    scale = (_half(blocks, 208) * scales)[..., None]
    value: np.ndarray = scale * quants.reshape(*lead, 16, 16)
    return value


_FORMATS: dict[Dtype, Callable[[np.ndarray], np.ndarray]] = {
    Dtype.Q4_0: _q4_0,
    Dtype.Q4_1: _q4_1,
    Dtype.Q8_0: _q8_0,
    Dtype.Q4_K: _q4_k,
    Dtype.Q5_K: _q5_k,
    Dtype.Q6_K: _q6_k,
}
