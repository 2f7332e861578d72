"""A typed region of backend memory."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Protocol

import numpy as np

from flatwake_kernels.dtype import Dtype


class Memory(Protocol):
    """Who copies a buffer's bytes; every backend is one."""

    def copy_in(self, address: int, source: np.ndarray) -> None: ...
    def copy_out(self, address: int, target: np.ndarray) -> None: ...


@dataclass(frozen=True)
class Buffer:
    """`shape` elements of `dtype` at `ptr`, row-major.

    `memory` copies to and from the host. `owner` keeps the region alive: as long as any view of
    it lives, so does the region.
    """

    ptr: int
    shape: tuple[int, ...]
    dtype: Dtype
    memory: Memory = field(repr=False, compare=False)
    owner: object = field(repr=False, compare=False)

    @property
    def elements(self) -> int:
        return prod(self.shape)

    @property
    def nbytes(self) -> int:
        return self.dtype.bytes(self.elements)

    def view(self, *shape: int) -> Buffer:
        """The same elements in another shape."""
        if prod(shape) != self.elements:
            raise ValueError(f"{self.shape} cannot be viewed as {shape}")
        return Buffer(self.ptr, shape, self.dtype, self.memory, self)

    def head(self, count: int) -> Buffer:
        """The first `count` entries along the first axis."""
        return self.part(0, count)

    def part(self, start: int, count: int) -> Buffer:
        """`count` entries along the first axis from `start`."""
        if not 0 <= start <= start + count <= self.shape[0]:
            raise ValueError(f"[{start}, {start + count}) is outside of {self.shape}")
        offset = self.dtype.bytes(start * prod(self.shape[1:]))
        shape = (count, *self.shape[1:])
        return Buffer(self.ptr + offset, shape, self.dtype, self.memory, self)

    def __getitem__(self, index: int) -> Buffer:
        """Entry `index` along the first axis."""
        return self.part(index, 1).view(*self.shape[1:])

    def write(self, values: np.ndarray | Sequence[float] | Sequence[int]) -> None:
        """Copy host values in; they have this buffer's shape (bfloat16: uint16 bit patterns)."""
        array = np.ascontiguousarray(values, dtype=self.dtype.numpy)
        if array.shape != self.shape:
            raise ValueError(f"values of shape {array.shape} for a buffer of {self.shape}")
        self.memory.copy_in(self.ptr, array)

    def read(self) -> np.ndarray:
        """A host copy."""
        array = np.empty(self.shape, self.dtype.numpy)
        self.memory.copy_out(self.ptr, array)
        return array


def host_view(ptr: int, shape: tuple[int, ...], dtype: Dtype) -> np.ndarray:
    """Host memory at `ptr` as a numpy array that shares it. The caller keeps it alive."""
    if not prod(shape):
        return np.empty(shape, dtype.numpy)
    raw = (ctypes.c_uint8 * dtype.bytes(prod(shape))).from_address(ptr)
    return np.frombuffer(memoryview(raw), dtype=dtype.numpy).reshape(shape)
