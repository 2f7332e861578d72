"""Activations of a step. All plans share them: they run one after another on one stream."""

from __future__ import annotations

from flatwake_kernels.backend import Backend, Device
from flatwake_kernels.buffer import Buffer
from flatwake_kernels.dtype import Dtype


class Workspace:
    """Named buffers, allocated at the largest size; the first to ask has the most rows."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._buffers: dict[str, Buffer] = {}

    @property
    def device(self) -> Device:
        return self._backend.device

    def get(self, name: str, *shape: int, dtype: Dtype) -> Buffer:
        """A buffer of `shape`, the head of the one that `name` had first."""
        whole = self._buffers.get(name)
        if whole is None:
            whole = self._buffers[name] = self._backend.allocate(*shape, dtype=dtype)
        assert whole.dtype == dtype, f"{name} has one type"
        assert whole.shape[1:] == shape[1:], f"{name} has one shape"
        assert shape[0] <= whole.shape[0], f"{name}: record the largest bucket first"
        return whole.head(shape[0])

    def whole(self, name: str) -> Buffer:
        """All of a buffer that was asked for before."""
        return self._buffers[name]
