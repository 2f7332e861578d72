"""Open a backend by its name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from flatwake_kernels.backend import Backend, BackendUnavailable

BackendName = Literal["reference", "cpu", "hip", "emulation", "cuda"]
NAMES: tuple[BackendName, ...] = ("reference", "cpu", "hip", "emulation", "cuda")


def open_backend(
    name: BackendName,
    *,
    device: int = 0,
    threads: int = 0,
    heartbeat: int = 0,
    block: bool = False,
    settings: Mapping[str, str] | None = None,
) -> Backend:
    """A backend, ready to allocate. Arguments as NativeBackend's.

    The reference takes the heartbeat alone.

    Raises:
        BackendUnavailable: it cannot serve here; the message says why.
    """
    if name == "reference":
        from flatwake_kernels.reference.backend import ReferenceBackend

        return ReferenceBackend(heartbeat)
    from flatwake_kernels.native import NativeBackend

    return NativeBackend(
        name, device=device, threads=threads, heartbeat=heartbeat, block=block, settings=settings
    )


def unavailable(name: BackendName) -> str | None:
    """Why a backend cannot serve here; None when it can."""
    try:
        open_backend(name).close()
    except BackendUnavailable as error:
        return str(error)
    return None
