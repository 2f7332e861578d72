"""The reference as a backend: numpy memory, weights as they lie, plans call by call."""

from __future__ import annotations

import ctypes
import os
import platform
import time
from collections.abc import Callable, Sequence
from importlib import import_module
from math import prod

import numpy as np

from flatwake_kernels.backend import (
    Activations,
    Device,
    KernelError,
    Kind,
    MemoryShort,
    MemoryUse,
    Weight,
)
from flatwake_kernels.buffer import Buffer
from flatwake_kernels.declaration import Handle, LinearHandle, Op
from flatwake_kernels.dtype import Dtype
from flatwake_kernels.plan import Plan
from flatwake_kernels.reference.call import Call
from flatwake_kernels.reference.linear import Layer

_ALIGNMENT = 64


class ReferenceBackend:
    """Everything in numpy, in the calling thread: slow, and right.

    `heartbeat` is the address of a uint64 stamped after each op (CLOCK_MONOTONIC, ns); 0: none.
    """

    name = "reference"

    def __init__(self, heartbeat: int = 0) -> None:
        self._stamp = ctypes.c_uint64.from_address(heartbeat) if heartbeat else ctypes.c_uint64()
        self._allocated = self._peak = 0
        self.device = Device(
            name="numpy",
            architecture=platform.machine(),
            memory_bytes=self.memory().total,
            compute_units=os.cpu_count() or 1,
            wave=1,
        )

    def memory(self) -> MemoryUse:
        """The host's memory; what other processes leave of it."""
        page = os.sysconf("SC_PAGE_SIZE")
        total = os.sysconf("SC_PHYS_PAGES") * page
        return MemoryUse(total, _available(total), self._allocated, self._peak)

    def supports(self, op: type[Op]) -> bool:
        return True

    def allocate(self, *shape: int, dtype: Dtype, kind: Kind = "device") -> Buffer:
        nbytes = dtype.bytes(prod(shape))
        try:
            # Zeroed by the kernel when first touched: a pool that is not used costs nothing.
            region = np.zeros(nbytes + _ALIGNMENT, np.uint8)
        except MemoryError as error:
            raise MemoryShort(f"{nbytes} bytes of memory are not to be had") from error
        self._allocated += nbytes
        self._peak = max(self._peak, self._allocated)
        address = -(-region.ctypes.data // _ALIGNMENT) * _ALIGNMENT
        return Buffer(address, shape, dtype, self, _Region(self, region, nbytes))

    def copy(self, target: Buffer, source: Buffer) -> None:
        assert target.nbytes == source.nbytes, "copies are between buffers of one size"
        ctypes.memmove(target.ptr, source.ptr, source.nbytes)

    def copy_in(self, address: int, source: np.ndarray) -> None:
        ctypes.memmove(address, source.ctypes.data, source.nbytes)

    def copy_out(self, address: int, target: np.ndarray) -> None:
        ctypes.memmove(target.ctypes.data, address, target.nbytes)

    def prepare_linear(self, views: Sequence[Weight], activations: Activations) -> LinearHandle:
        layer = Layer(views, activations)
        nbytes = sum(v.rows * v.dtype.bytes(v.columns) for v in views)
        return LinearHandle(id(layer), layer.rows, layer.columns, nbytes, layer)

    def record(self) -> ReferencePlan:
        return ReferencePlan(self._stamp)

    def event(self) -> ReferenceEvent:
        return ReferenceEvent()

    def read_rate(self, nbytes: int, repeats: int = 3) -> float:
        data, best = np.ones(max(nbytes // 8, 1), np.int64), np.inf
        for _ in range(repeats):
            began = time.perf_counter()
            data.max()
            best = min(best, time.perf_counter() - began)
        return data.nbytes / best

    def product_rate(self, activations: Activations) -> float | None:
        return None

    def close(self) -> None:
        """numpy gives memory back with the last buffer."""

    def release(self, nbytes: int) -> None:
        """Count memory that went with its last buffer."""
        self._allocated -= nbytes


class _Region:
    """An allocation, counted while it lives."""

    def __init__(self, backend: ReferenceBackend, array: np.ndarray, nbytes: int) -> None:
        self._backend, self._array, self._nbytes = backend, array, nbytes

    def __del__(self) -> None:
        self._backend.release(self._nbytes)


def _available(total: int) -> int:
    try:
        with open("/proc/meminfo") as lines:
            for line in lines:
                if line.startswith("MemAvailable:"):
                    return int(line.split()[1]) * 1024
    except OSError:
        pass
    return total


class ReferenceEvent:
    """Plans run at once, so every mark has been passed."""

    def record(self) -> None: ...

    def wait(self) -> None: ...


class ReferencePlan(Plan):
    def __init__(self, stamp: ctypes.c_uint64) -> None:
        super().__init__()
        self._stamp = stamp
        self._calls: list[tuple[Callable[[Call], None], Call]] = []

    def finish(self) -> None:
        self._calls = [(_function(op), Call(op)) for op in self.ops]
        for _, call in self._calls:
            _check_layers(call)

    def capture(self) -> None:
        """There are no graphs here."""

    def run(self) -> None:
        for function, call in self._calls:
            function(call)
            self._stamp.value = time.monotonic_ns()

    def trace(self) -> list[float]:
        seconds = []
        for function, call in self._calls:
            start = time.perf_counter()
            function(call)
            seconds.append(time.perf_counter() - start)
        return seconds


def _function(op: Op) -> Callable[[Call], None]:
    module = import_module(f"flatwake_kernels.reference.{op.reference}")
    function: Callable[[Call], None] = getattr(module, op.name)
    return function


def _check_layers(call: Call) -> None:
    """Layers must have the shape that the call's other parameters imply."""
    for name, kind in call.op.fields.items():
        if not isinstance(kind, Handle):
            continue
        layer = call.linear(name)
        inputs = "width" if "width" in call.op.fields else "inputs"
        if layer.columns != call.size(inputs):
            raise KernelError(
                f"{call.op.name}.{name} has {layer.columns} columns, "
                f"{inputs} is {call.size(inputs)}"
            )
        factor = 2 if call.op.name == "gate_up_silu" else 1
        if "outputs" in call.op.fields and layer.rows != factor * call.size("outputs"):
            raise KernelError(
                f"{call.op.name}.{name} has {layer.rows} rows, wanted {factor} x outputs, "
                f"which is {call.size('outputs')}"
            )
