"""What a backend is: memory, prepared weights, recorded plans. One protocol for all of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np

from flatwake_kernels.buffer import Buffer
from flatwake_kernels.declaration import LinearHandle, Op
from flatwake_kernels.dtype import Dtype
from flatwake_kernels.plan import Plan

Activations = Literal["float", "int8"]
Kind = Literal["device", "pinned"]


class BackendUnavailable(Exception):
    """A backend cannot serve here; the message says what is missing and how to get it."""


class KernelError(Exception):
    """A kernel library refused or failed; the message is the library's own."""


class MemoryShort(KernelError):
    """There is not enough memory on the device (or on the host, pinned)."""


class Unsupported(KernelError):
    """This library or device doesn't do what was asked of it."""


@dataclass(frozen=True)
class Device:
    """`memory_bytes` of the device; `wave` lanes run as one (1 on a CPU)."""

    name: str
    architecture: str
    memory_bytes: int
    compute_units: int
    wave: int
    features: tuple[str, ...] = ()


@dataclass(frozen=True)
class MemoryUse:
    """Bytes. `allocated` and `peak` are this backend's own."""

    total: int
    free: int
    allocated: int
    peak: int


@dataclass(frozen=True)
class Weight:
    """Rows of a linear layer, as they lie in a file: `data` is uint8, `[rows, row_bytes]`.

    `permutation` (int32, [rows]): row i of the layer is the file's row permutation[i].
    """

    data: np.ndarray
    dtype: Dtype
    columns: int
    permutation: np.ndarray | None = None

    @property
    def rows(self) -> int:
        return int(self.data.shape[0])


class Event(Protocol):
    def record(self) -> None:
        """Mark this place on the stream."""

    def wait(self) -> None:
        """Return once the stream has passed the mark."""


class Backend(Protocol):
    """`name` is reference, cpu, hip, emulation or cuda."""

    name: str
    device: Device

    def memory(self) -> MemoryUse: ...

    def supports(self, op: type[Op]) -> bool: ...

    def allocate(self, *shape: int, dtype: Dtype, kind: Kind = "device") -> Buffer:
        """Zeroed memory, freed with the buffer and its last view.

        Raises:
            KernelError: there is not enough.
        """

    def copy(self, target: Buffer, source: Buffer) -> None:
        """Copy between buffers of the same size, ordered on the stream."""

    def copy_in(self, address: int, source: np.ndarray) -> None: ...

    def copy_out(self, address: int, target: np.ndarray) -> None: ...

    def prepare_linear(self, views: Sequence[Weight], activations: Activations) -> LinearHandle:
        """A layer of the views' rows, one after another. Called once a layer."""

    def record(self) -> Plan: ...

    def event(self) -> Event: ...

    def read_rate(self, nbytes: int, repeats: int = 3) -> float:
        """Bytes a second of reading `nbytes` of device memory again and again, the best."""

    def product_rate(self, activations: Activations) -> float | None:
        """Multiply-adds a second that the device does on registers alone; None: not measured."""

    def close(self) -> None:
        """Give everything back. No buffer, plan or handle may be used afterwards."""
