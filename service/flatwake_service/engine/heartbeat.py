"""Signs of life in shared memory: what a hung engine can't send, the API process can still see."""

from __future__ import annotations

import ctypes
import mmap
import os
import time

IDLE_SECONDS = 1.0
"""An idle engine stamps its heartbeat this often, so that a stopped one is found as well."""


class _Page(ctypes.Structure):
    _fields_ = (
        ("stamp", ctypes.c_uint64),  # the newest sign of life, CLOCK_MONOTONIC ns; 0: none yet
        ("step", ctypes.c_uint64),  # the step in flight, or 0
    )


class Heartbeat:
    """A page that the engine stamps and the API process reads.

    A kernel library may stamp it too, after every op: `address` is that of the stamp.
    """

    def __init__(self, descriptor: int) -> None:
        self._memory = mmap.mmap(descriptor, mmap.PAGESIZE)
        # ctypes stores a word in one instruction; struct would do so byte by byte.
        self._page = _Page.from_buffer(self._memory)
        self.address = ctypes.addressof(self._page)

    @classmethod
    def create(cls) -> tuple[Heartbeat, int]:
        """A new page, and the descriptor to hand to the child. Anonymous: no file system whose
        write-back could hold a stamp up, and nothing is left behind."""
        descriptor = os.memfd_create("flatwake-heartbeat")
        os.ftruncate(descriptor, mmap.PAGESIZE)
        return cls(descriptor), descriptor

    @classmethod
    def open(cls, path: str) -> Heartbeat:
        descriptor = os.open(path, os.O_RDWR)
        try:
            return cls(descriptor)
        finally:
            os.close(descriptor)

    def beat(self) -> None:
        self._page.stamp = time.monotonic_ns()

    def begin(self, step: int) -> None:
        self._page.stamp = time.monotonic_ns()
        self._page.step = step

    def end(self) -> None:
        self._page.stamp = time.monotonic_ns()
        self._page.step = 0

    @property
    def stamp(self) -> float:
        """The newest sign of life, CLOCK_MONOTONIC seconds; 0 before the first."""
        return float(self._page.stamp) / 1e9

    @property
    def step(self) -> int:
        """The step in flight, or 0."""
        return int(self._page.step)
