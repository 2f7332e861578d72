"""The device's memory bandwidth, measured once at start."""

from __future__ import annotations

import time

from flatwake_kernels.backend import Backend
from flatwake_kernels.dtype import Dtype

_HOST_BYTES, _DEVICE_BYTES = 32 << 20, 1 << 30
_ROUNDS = 3


def measure_bandwidth(backend: Backend) -> float:
    """Bytes a second that a copy on the device reads and writes, the best of a few rounds."""
    size = _HOST_BYTES if backend.device.wave <= 1 else _DEVICE_BYTES
    size = min(size, backend.memory().free // 8)
    source = backend.allocate(size, dtype=Dtype.I8)
    target = backend.allocate(size, dtype=Dtype.I8)
    event = backend.event()
    best = 0.0
    for _ in range(_ROUNDS):
        began = time.perf_counter()
        backend.copy(target, source)
        event.record()
        event.wait()
        best = max(best, 2 * size / (time.perf_counter() - began))
    return best
