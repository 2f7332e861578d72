"""Which backend serves when none is named."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

KFD = Path("/dev/kfd")


def choose() -> tuple[str, str]:
    """The best backend of this machine, and why.

    Each is tried in a process of its own: whatever a device's driver leaves behind in the process
    that opened it would stay in the server.
    """
    if not KFD.exists():
        reason = f"no {KFD}"
    elif (missing := unavailable("hip")) is None:
        return "hip", "a HIP device was found"
    else:
        reason = f"no HIP device: {missing}"
    if (missing := unavailable("cpu")) is None:
        return "cpu", reason
    return "reference", f"{reason}; the CPU library isn't usable ({missing}): this is slow"


def unavailable(name: str) -> str | None:
    """Why a backend can't serve here; None when it can."""
    script = (
        "import sys; from flatwake_kernels.backends import unavailable; "
        "missing = unavailable(sys.argv[1]); print(missing or '', end='')"
    )
    tried = subprocess.run(
        [sys.executable, "-c", script, name], capture_output=True, text=True, check=False
    )
    if tried.returncode == 0:
        return tried.stdout or None
    last = tried.stderr.strip().splitlines()[-1:] or [f"exit code {tried.returncode}"]
    return f"trying it failed: {last[0]}"
