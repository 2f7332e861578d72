"""Is there a device that can serve? Asked before a download, and by `flatwake doctor`.

In order: /dev/kfd is there, it and a render node can be opened, the kernel library and the HIP
runtime load, a device is found, its architecture is built and wanted, its memory is enough.
"""

from __future__ import annotations

import errno
import json
import os
import stat
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from flatwake_service.errors import FlatwakeError

# A driver leaves threads and mappings behind in the process that opened it: the device is looked
# at in one of its own, which then ends.
_LOOK = """
import json
from flatwake_kernels.backend import BackendUnavailable, KernelError
from flatwake_kernels.library import Library, find_library
reason = "LibraryUnusable"
try:
    library = Library("hip", find_library("hip"))
    reason = "NoDevice"
    library.device_count()
    reason = "ArchitectureUnsupported"
    from flatwake_kernels.native import NativeBackend
    device = NativeBackend("hip").device
    found = {"name": device.name, "architecture": device.architecture,
             "memory_bytes": device.memory_bytes}
except (BackendUnavailable, KernelError) as error:
    if "libamdhip64" in str(error):
        reason = "RuntimeMissing"
    found = {"reason": reason, "message": str(error)}
print(json.dumps(found))
"""


class PreflightFailed(FlatwakeError):
    """This node, or this pod's rights on it, can't serve; `reason` says which check failed."""

    def __init__(self, reason: str, message: str, *, cure: str = "") -> None:
        super().__init__(message, cure=cure)
        self.found = reason

    @property
    def reason(self) -> str:  # type: ignore[override]  # one class for a closed list of checks
        return self.found


@dataclass(frozen=True)
class FoundDevice:
    name: str
    architecture: str
    memory_bytes: int


def preflight(
    architectures: Sequence[str] = (), min_memory: int = 0, *, devices: Path = Path("/dev")
) -> FoundDevice:
    """The device that would serve.

    Raises:
        PreflightFailed: the first check that failed, with its cure.
    """
    check_nodes(devices)
    device = look()
    wanted = " or ".join(architectures)
    if architectures and device.architecture not in architectures:
        raise PreflightFailed(
            "ArchitectureUnsupported",
            f"the device is {device.architecture} ({device.name}), not {wanted}",
            cure="widen accelerator.architectures, or keep the pod off this node",
        )
    if device.memory_bytes < min_memory:
        raise PreflightFailed(
            "DeviceMemoryShort",
            f"the device has {device.memory_bytes / 2**30:.1f} GiB of memory, "
            f"{min_memory / 2**30:.1f} GiB are wanted",
            cure="lower accelerator.minMemory, or keep the pod off this node",
        )
    return device


def check_nodes(devices: Path) -> None:
    """The driver's node and at least one render node can be opened for reading and writing.

    Raises:
        PreflightFailed: DeviceNodeMissing or DeviceAccessDenied.
    """
    kfd = devices / "kfd"
    if not kfd.exists():
        raise PreflightFailed(
            "DeviceNodeMissing",
            f"there is no {kfd}: the amdgpu driver isn't loaded, or the device plugin gave no GPU",
            cure="load the driver on the node, and request the accelerator's resource",
        )
    _open(kfd)
    renders = sorted((devices / "dri").glob("renderD*")) if (devices / "dri").is_dir() else []
    if not renders:
        raise PreflightFailed(
            "DeviceNodeMissing",
            f"there is no {devices}/dri/renderD*: the device plugin gave no GPU",
            cure="request the accelerator's resource",
        )
    for render in renders[:-1]:
        try:
            return _open(render)
        except PreflightFailed:
            continue
    return _open(renders[-1])


def _open(node: Path) -> None:
    try:
        os.close(os.open(node, os.O_RDWR | os.O_CLOEXEC))
    except OSError as error:
        if error.errno not in (errno.EACCES, errno.EPERM):
            raise PreflightFailed(
                "DeviceNodeMissing", f"{node} can't be opened: {os.strerror(error.errno or 0)}"
            ) from error
        status = node.stat()
        groups = " ".join(map(str, sorted({os.getgid(), *os.getgroups()})))
        raise PreflightFailed(
            "DeviceAccessDenied",
            f"{node} is {stat.filemode(status.st_mode)} of group {status.st_gid}; "
            f"this process is user {os.getuid()} in groups {groups}",
            cure=f"add {status.st_gid} to accelerator.renderGroups (or the user to that group)",
        ) from error


def look() -> FoundDevice:
    """The first HIP device, seen from a process of its own.

    Raises:
        PreflightFailed: LibraryUnusable, RuntimeMissing, NoDevice or ArchitectureUnsupported.
    """
    tried = subprocess.run(
        [sys.executable, "-c", _LOOK], capture_output=True, text=True, check=False
    )
    if tried.returncode:
        last = tried.stderr.strip().splitlines()[-1:] or [f"exit code {tried.returncode}"]
        raise PreflightFailed("LibraryUnusable", f"looking at the device failed: {last[0]}")
    found = json.loads(tried.stdout)
    if "reason" in found:
        raise PreflightFailed(found["reason"], found["message"])
    return FoundDevice(**found)
