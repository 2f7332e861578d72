"""The backend over a kernel library: handles here, everything else below the C ABI."""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Mapping, Sequence
from ctypes import POINTER, byref, c_double, c_int32, c_uint64, c_void_p, cast
from math import prod

import numpy as np

from flatwake_kernels.abi import (
    DEVICE,
    FLOAT_ACTIVATIONS,
    INT8_ACTIVATIONS,
    PINNED,
    WAIT_BLOCK,
    WAIT_SPIN,
    Call,
    ContextOptions,
    DeviceInfo,
    LinearInfo,
    WeightView,
)
from flatwake_kernels.abi import MemoryInfo as MemoryStruct
from flatwake_kernels.backend import Activations, Device, Kind, MemoryUse, Weight
from flatwake_kernels.buffer import Buffer
from flatwake_kernels.declaration import LinearHandle, Op
from flatwake_kernels.dtype import Dtype
from flatwake_kernels.library import Library, find_library
from flatwake_kernels.plan import Plan

_KINDS = {"device": DEVICE, "pinned": PINNED}
_TO_DEVICE, _TO_HOST, _ON_DEVICE = 0, 1, 2


class Region:
    """Memory of a library, given back when the last buffer over it goes."""

    def __init__(self, backend: NativeBackend, nbytes: int, kind: Kind) -> None:
        address = c_uint64()
        backend.library.call(
            "fw_allocate", backend.context, max(nbytes, 1), _KINDS[kind], byref(address)
        )
        self.address = address.value
        self.kind = kind
        weakref.finalize(self, _release, backend, _KINDS[kind], self.address)


def _release(backend: NativeBackend, kind: int, address: int) -> None:
    if not backend.closed:
        backend.library.call("fw_free", backend.context, kind, address)


class NativeBackend:
    """A context of a kernel library.

    Args:
        name: cpu, hip, emulation or cuda.
        threads: that the library may use; 0: all that this process may.
        heartbeat: address of a uint64 that the library stamps (CLOCK_MONOTONIC, ns); 0: none.
        wait: spin while waiting for events, or block.
        settings: a library's own switches, such as `isa=avx2`.

    Raises:
        BackendUnavailable: no library, no device, another layout.
    """

    def __init__(
        self,
        name: str,
        *,
        device: int = 0,
        rank: int = 0,
        world: int = 1,
        threads: int = 0,
        heartbeat: int = 0,
        block: bool = False,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        self.name = name
        self.closed = False
        self.library = Library(name, find_library(name))
        self.library.device_count()
        text = ",".join(f"{k}={v}" for k, v in (settings or {}).items())
        self._settings = ctypes.create_string_buffer(text.encode())
        options = ContextOptions(
            heartbeat=heartbeat,
            settings=ctypes.addressof(self._settings),
            device=device,
            rank=rank,
            world=world,
            threads=threads,
            wait=WAIT_BLOCK if block else WAIT_SPIN,
        )
        self.context = c_void_p()
        self.library.call("fw_context_create", byref(options), byref(self.context))
        self.device = self._describe()

    def _describe(self) -> Device:
        info = DeviceInfo()
        self.library.call("fw_device", self.context, byref(info))
        return Device(
            name=info.name.decode(),
            architecture=info.architecture.decode(),
            memory_bytes=self.memory().total,
            compute_units=info.compute_units,
            wave=info.wave,
            features=tuple(info.features.decode().split()),
        )

    def memory(self) -> MemoryUse:
        info = MemoryStruct()
        self.library.call("fw_memory", self.context, byref(info))
        return MemoryUse(info.total, info.free, info.allocated, info.peak)

    def supports(self, op: type[Op]) -> bool:
        return self.library.supports(self.context, op.number)

    def allocate(self, *shape: int, dtype: Dtype, kind: Kind = "device") -> Buffer:
        region = Region(self, dtype.bytes(prod(shape)), kind)
        return Buffer(region.address, shape, dtype, self, region)

    def copy(self, target: Buffer, source: Buffer) -> None:
        assert target.nbytes == source.nbytes, "copies are between buffers of one size"
        # The address says which side is the host's: runtimes tell pinned memory by it.
        self._copy(target.ptr, source.ptr, source.nbytes, _direction(target, source))

    def copy_in(self, address: int, source: np.ndarray) -> None:
        self._copy(address, source.ctypes.data, source.nbytes, _TO_DEVICE)
        self.synchronise()

    def copy_out(self, address: int, target: np.ndarray) -> None:
        self._copy(target.ctypes.data, address, target.nbytes, _TO_HOST)
        self.synchronise()

    def _copy(self, target: int, source: int, nbytes: int, direction: int) -> None:
        self.library.call("fw_copy", self.context, target, source, nbytes, direction)

    def synchronise(self) -> None:
        """Wait until the stream is empty."""
        event = self.event()
        event.record()
        event.wait()

    def prepare_linear(self, views: Sequence[Weight], activations: Activations) -> LinearHandle:
        structs = (WeightView * len(views))(*map(_weight_view, views))
        handle, info = c_void_p(), LinearInfo()
        mode = INT8_ACTIVATIONS if activations == "int8" else FLOAT_ACTIVATIONS
        self.library.call(
            "fw_linear_prepare",
            self.context, structs, len(views), mode, byref(handle), byref(info),
        )  # fmt: skip
        assert handle.value is not None
        rows = sum(v.rows for v in views)
        # Data stays mapped unless the library holds a copy of its own.
        keep = None if info.own else tuple(views)
        owner = _Owned(self, "fw_linear_destroy", handle, keep)
        return LinearHandle(handle.value, rows, views[0].columns, info.bytes, owner)

    def record(self) -> NativePlan:
        return NativePlan(self)

    def event(self) -> NativeEvent:
        return NativeEvent(self)

    def read_rate(self, nbytes: int, repeats: int = 3) -> float:
        seconds = c_double()
        self.library.call("fw_measure_read", self.context, nbytes, repeats, byref(seconds))
        return nbytes / seconds.value

    def product_rate(self, activations: Activations) -> float | None:
        if not self.library.offers("fw_measure_compute"):
            return None
        mode = INT8_ACTIVATIONS if activations == "int8" else FLOAT_ACTIVATIONS
        products = c_double()
        self.library.call("fw_measure_compute", self.context, mode, 3, byref(products))
        return products.value

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            self.library.destroy("fw_context_destroy", self.context)


def _direction(target: Buffer, source: Buffer) -> int:
    if _pinned(source):
        return _TO_DEVICE
    return _TO_HOST if _pinned(target) else _ON_DEVICE


def _pinned(buffer: Buffer) -> bool:
    owner: object = buffer
    while isinstance(owner, Buffer):
        owner = owner.owner
    return isinstance(owner, Region) and owner.kind == "pinned"


def _weight_view(view: Weight) -> WeightView:
    permutation = view.permutation
    assert permutation is None or permutation.dtype == np.int32
    return WeightView(
        data=view.data.ctypes.data,
        permutation=0 if permutation is None else permutation.ctypes.data,
        rows=view.rows,
        columns=view.columns,
        row_bytes=view.data.strides[0],
        format=int(view.dtype),
    )


class _Owned:
    """A library's handle, destroyed when nothing refers to it, unless the context went first."""

    def __init__(
        self, backend: NativeBackend, destroy: str, handle: c_void_p, keep: object = None
    ) -> None:
        self.handle = handle
        self.keep = keep
        weakref.finalize(self, _destroy, backend, destroy, handle)


def _destroy(backend: NativeBackend, symbol: str, handle: c_void_p) -> None:
    if not backend.closed:
        backend.library.destroy(symbol, handle)


class NativeEvent:
    def __init__(self, backend: NativeBackend) -> None:
        handle = c_void_p()
        backend.library.call("fw_event_create", backend.context, byref(handle))
        self._library = backend.library
        self._owned = _Owned(backend, "fw_event_destroy", handle)

    def record(self) -> None:
        self._library.call("fw_event_record", self._owned.handle)

    def wait(self) -> None:
        self._library.call("fw_event_wait", self._owned.handle)


class NativePlan(Plan):
    def __init__(self, backend: NativeBackend) -> None:
        super().__init__()
        self._backend = backend
        self._owned: _Owned | None = None

    def finish(self) -> None:
        calls = (Call * len(self.ops))()
        for call, op in zip(calls, self.ops, strict=True):
            call.op = op.number
            call.size = ctypes.sizeof(op.params)
            call.params = cast(ctypes.pointer(op.params), c_void_p).value or 0
        handle = c_void_p()
        backend = self._backend
        backend.library.call("fw_plan_create", backend.context, calls, len(self.ops), byref(handle))
        self._owned = _Owned(backend, "fw_plan_destroy", handle)

    @property
    def _handle(self) -> c_void_p:
        assert self._owned is not None, "a plan runs after it was recorded"
        return self._owned.handle

    def capture(self) -> None:
        self._backend.library.call("fw_plan_capture", self._handle)

    def run(self) -> None:
        self._backend.library.call("fw_plan_run", self._handle)

    def launches(self) -> int:
        """Kernels that a run launches, which are its graph's nodes; only GPU libraries count."""
        count = c_int32()
        self._backend.library.call("fw_plan_launches", self._handle, byref(count), None)
        return count.value

    def trace(self) -> list[float]:
        seconds = (c_double * len(self.ops))()
        self._backend.library.call(
            "fw_plan_trace", self._handle, cast(seconds, POINTER(c_double)), c_int32(len(self.ops))
        )
        return list(seconds)
