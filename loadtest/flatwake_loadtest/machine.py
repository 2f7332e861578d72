"""Where and with what a report was made."""

from __future__ import annotations

import os
import platform
import re
import subprocess
from importlib import metadata
from pathlib import Path


def machine() -> str:
    """The processor, how many of its cores may be used, the memory."""
    cpu = Path("/proc/cpuinfo").read_text()
    memory = re.search(r"MemTotal:\s+(\d+)", Path("/proc/meminfo").read_text())
    model = re.search(r"model name\s*:\s*(.+)", cpu)
    cores = len(os.sched_getaffinity(0))
    size = f"{int(memory.group(1)) / 2**20:.0f} GiB" if memory else "unknown memory"
    return f"{model.group(1).strip() if model else platform.machine()}, {cores} cores, {size}"


def versions() -> dict[str, str]:
    return {
        "flatwake": metadata.version("flatwake"),
        "locust": metadata.version("locust"),
        "python": platform.python_version(),
        "linux": platform.release(),
    }


def commit() -> str | None:
    """The checkout's commit, with a mark if it has been changed; None outside a checkout."""
    here = Path(__file__).parent
    try:
        found = subprocess.run(
            ["git", "describe", "--always", "--dirty", "--exclude=*"],
            cwd=here,
            capture_output=True,
            text=True,
            check=True,
        )
    except (OSError, subprocess.CalledProcessError):
        return None
    return found.stdout.strip()
