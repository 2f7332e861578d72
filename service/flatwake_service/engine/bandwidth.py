"""The device's memory bandwidth, measured once at start."""

from __future__ import annotations

from flatwake_kernels.backend import Backend

_HOST_BYTES, _DEVICE_BYTES = 32 << 20, 1 << 30


def measure_bandwidth(backend: Backend) -> float:
    """Bytes a second that the device reads, the best of a few rounds."""
    size = _HOST_BYTES if backend.device.wave <= 1 else _DEVICE_BYTES
    return backend.read_rate(min(size, backend.memory().free // 8))
