"""Guarded buffers of one backend, filled from one seed, for one op."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import numpy as np
from flatwake_kernels.backend import Activations, Backend, Weight
from flatwake_kernels.buffer import Buffer
from flatwake_kernels.declaration import LinearHandle
from flatwake_kernels.dtype import Dtype, narrow_bf16, widen_bf16

GUARD_BYTES = 256
UNWRITTEN = 77
"""What a buffer for results holds before; no result comes to it."""
_GUARD = 0xA5
SEED = int(os.environ.get("FLATWAKE_SEED", "20260801"))

FLOATS = (Dtype.F32, Dtype.F16, Dtype.BF16)
QUANTS = (Dtype.Q4_0, Dtype.Q4_1, Dtype.Q8_0, Dtype.Q4_K, Dtype.Q5_K, Dtype.Q6_K)
_HALVES = {Dtype.Q4_1: (0, 2), Dtype.Q4_K: (0, 2), Dtype.Q5_K: (0, 2), Dtype.Q6_K: (208,)}


class Bench:
    """What a case builds its op from. Two benches of one seed hold the same values."""

    def __init__(self, backend: Backend, seed: int) -> None:
        self.backend = backend
        self.random = np.random.default_rng(seed)
        self._guarded: list[tuple[Buffer, int]] = []

    def given(self, values: Any, dtype: Dtype = Dtype.F32) -> Buffer:
        """A buffer that holds `values`, rounded to `dtype`."""
        array = np.asarray(values)
        buffer = self._allocate(array.shape, dtype)
        buffer.write(encode(array, dtype))
        return buffer

    def ints(self, values: Any) -> Buffer:
        return self.given(np.asarray(values, np.int32), Dtype.I32)

    def normal(self, *shape: int, dtype: Dtype = Dtype.F32, scale: float = 1.0) -> Buffer:
        return self.given(self.random.standard_normal(shape, np.float32) * scale, dtype)

    def rows(self, live: int, *shape: int, dtype: Dtype = Dtype.F32) -> Buffer:
        """Normal values whose rows from `live` on are NaN: nothing may come of them."""
        values = self.random.standard_normal(shape, np.float32)
        values[live:] = np.nan
        return self.given(values, dtype)

    def empty(self, *shape: int, dtype: Dtype = Dtype.F32) -> Buffer:
        """A buffer for results. What it holds before is recognisable, and finite."""
        return self.given(np.full(shape, UNWRITTEN), dtype)

    def layer(
        self, rows: int, columns: int, *formats: Dtype, activations: Activations = "float",
        permuted: bool = False,
    ) -> LinearHandle:  # fmt: skip
        """A layer of one segment of `rows` rows a format."""
        views = [self.weight(rows, columns, f, permuted) for f in formats]
        return self.backend.prepare_linear(views, activations)

    def weight(self, rows: int, columns: int, dtype: Dtype, permuted: bool = False) -> Weight:
        data = random_weight(self.random, rows, columns, dtype)
        order = self.random.permutation(rows).astype(np.int32) if permuted else None
        return Weight(data, dtype, columns, order)

    def check_guards(self) -> None:
        """Nothing was written beside a buffer."""
        for index, (region, nbytes) in enumerate(self._guarded):
            data = region.read().view(np.uint8)
            before, after = data[:GUARD_BYTES], data[GUARD_BYTES + nbytes :]
            assert (before == _GUARD).all(), f"buffer {index}: written before its start"
            assert (after == _GUARD).all(), f"buffer {index}: written past its end"

    def _allocate(self, shape: tuple[int, ...], dtype: Dtype) -> Buffer:
        nbytes = dtype.bytes(int(np.prod(shape)))
        region = self.backend.allocate(nbytes + 2 * GUARD_BYTES, dtype=Dtype.I8)
        region.write(np.full(region.shape, _GUARD, np.uint8).view(np.int8))
        self._guarded.append((region, nbytes))
        return Buffer(region.ptr + GUARD_BYTES, shape, dtype, self.backend, region)


def encode(values: np.ndarray, dtype: Dtype) -> np.ndarray:
    """Host values as what a buffer of `dtype` is written with."""
    if dtype == Dtype.BF16:
        return narrow_bf16(values.astype(np.float32))
    return values.astype(dtype.numpy)


def decode(buffer: Buffer) -> np.ndarray:
    """A buffer's elements, bfloat16 widened."""
    values = buffer.read()
    return widen_bf16(values) if buffer.dtype == Dtype.BF16 else values


def random_weight(random: np.random.Generator, rows: int, columns: int, dtype: Dtype) -> np.ndarray:
    """uint8 [rows, row_bytes] of a format: any bits, but scales that are small numbers."""
    if not dtype.quantised:
        values = random.standard_normal((rows, columns), np.float32) / np.sqrt(columns)
        return encode(values, dtype).view(np.uint8).reshape(rows, -1)
    blocks = columns // dtype.block
    data = random.integers(0, 256, (rows, blocks, dtype.block_bytes), dtype=np.uint8)
    # The largest quants of each format come to about one.
    largest = {Dtype.Q8_0: 128, Dtype.Q4_K: 945, Dtype.Q5_K: 1953, Dtype.Q6_K: 4096}.get(dtype, 15)
    for at in _HALVES.get(dtype, (0,)):
        scale = random.standard_normal((rows, blocks, 1)) / largest
        if dtype == Dtype.Q4_1 and at == 2:
            scale *= largest / 2
        data[..., at : at + 2] = scale.astype(np.float16).view(np.uint8)
    return data.reshape(rows, -1)


def sequence_rows(lengths: Sequence[Sequence[int]], rows: int) -> dict[str, np.ndarray]:
    """Row arrays of sequences whose rows see `lengths`, in a bucket of `rows`.

    The last position that a row sees is its own. Unused rows have length 0.
    """
    live = sum(map(len, lengths))
    assert live <= rows
    row_length = np.zeros(rows, np.int32)
    row_sequence = np.zeros(rows, np.int32)
    first_row, row_count = np.zeros(rows, np.int32), np.zeros(rows, np.int32)
    row = 0
    for sequence, seen in enumerate(lengths):
        first_row[sequence], row_count[sequence] = row, len(seen)
        row_length[row : row + len(seen)] = seen
        row_sequence[row : row + len(seen)] = sequence
        row += len(seen)
    return {
        "row_length": row_length,
        "row_position": np.maximum(row_length - 1, 0),
        "row_sequence": row_sequence,
        "first_row": first_row,
        "row_count": row_count,
    }
