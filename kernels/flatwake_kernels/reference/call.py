"""A recorded call with its addresses opened as numpy arrays."""

from __future__ import annotations

import ctypes
from functools import cached_property

import numpy as np

from flatwake_kernels.buffer import host_view
from flatwake_kernels.declaration import LinearHandle, Op, Records, Tensor
from flatwake_kernels.dtype import Dtype
from flatwake_kernels.ops import Sampling
from flatwake_kernels.reference.rounding import narrow, widen


class Call:
    """What an op's reference function gets.

    Arrays share the memory that was recorded: a run sees what it holds at that time. The op keeps
    that memory alive.
    """

    def __init__(self, op: Op) -> None:
        self.op = op
        self._arrays: dict[str, np.ndarray] = {}
        self._dtypes: dict[str, Dtype] = {}
        for name, kind in op.fields.items():
            address = getattr(op.params, name)
            if isinstance(kind, Tensor) and address:
                dtype = kind.dtype if isinstance(kind.dtype, Dtype) else self.dtype(kind.dtype)
                shape = tuple(d if isinstance(d, int) else self.size(d) for d in kind.shape)
                self._arrays[name] = host_view(address, shape, dtype)
                self._dtypes[name] = dtype

    def size(self, name: str) -> int:
        """An integer parameter."""
        return int(getattr(self.op.params, name))

    def number(self, name: str) -> float:
        """A float parameter."""
        return float(getattr(self.op.params, name))

    def dtype(self, name: str) -> Dtype:
        """A type parameter."""
        return Dtype(self.size(name))

    def has(self, name: str) -> bool:
        """Whether an optional buffer was given."""
        return name in self._arrays

    def array(self, name: str) -> np.ndarray:
        """A buffer's elements as they lie (bfloat16: uint16), writable."""
        return self._arrays[name]

    def floats(self, name: str, rows: slice = slice(None)) -> np.ndarray:
        """`rows` along a buffer's first axis as float32. Not to be written."""
        return widen(self._arrays[name][rows], self._dtypes[name])

    def store(self, name: str, values: np.ndarray, rows: slice | int = slice(None)) -> None:
        """Round float32 `values` into `rows` along a buffer's first axis."""
        self._arrays[name][rows] = narrow(values, self._dtypes[name])

    def linear(self, name: str) -> LinearHandle:
        """A prepared layer."""
        handle = self.op.values[name]
        assert isinstance(handle, LinearHandle)
        return handle

    @cached_property
    def slots(self) -> ctypes.Array[Sampling]:
        """The sampling slots of sample and logprobs, as they lie."""
        kind = self.op.fields["slots"]
        assert isinstance(kind, Records)
        record = Sampling * self.size("slot_count")
        return record.from_address(self.op.params.slots)

    @property
    def live(self) -> slice:
        """The rows that are real."""
        return slice(0, min(max(int(self._arrays["live"][0]), 0), self.size("rows")))

    def row_ranges(self) -> list[tuple[int, range]]:
        """(sequence, its rows) of each sequence entry that has rows."""
        rows = self.size("rows")
        first, count = self._arrays["first_row"], self._arrays["row_count"]
        return [
            (s, range(max(int(f), 0), min(int(f) + int(n), rows)))
            for s, (f, n) in enumerate(zip(first, count, strict=True))
            if n > 0
        ]
