"""What this machine has, read from where Linux says it. Bytes."""

from __future__ import annotations

import os
import platform
import re
import subprocess
import sys
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from flatwake_service.cli.backends import KFD

VECTORS = ("avx2", "avx512f", "avx512_vnni", "avx_vnni", "amx_int8", "asimd", "asimddp", "i8mm")
"""CPU features that the kernels have code for, by /proc/cpuinfo's names."""

PACKAGES = {
    "service": (
        "fastapi",
        "gguf",
        "httptools",
        "httpx",
        "jinja2",
        "msgspec",
        "numpy",
        "prometheus-client",
        "prompt-toolkit",
        "safetensors",
        "tokenizers",
        "uvicorn",
        "uvloop",
    ),
    "operator": ("kopf", "httpx"),
    "loadtest": ("locust", "plotly"),
    "verify": ("torch", "transformers"),
}
"""Packages by the extra that brings them."""


def cpu() -> dict[str, object]:
    text = _read("/proc/cpuinfo")
    name = re.search(r"^(?:model name|Model)\s*:\s*(.*)$", text, re.MULTILINE)
    flags = re.search(r"^(?:flags|Features)\s*:\s*(.*)$", text, re.MULTILINE)
    known = set(flags[1].split()) if flags else set()
    return {
        "name": name[1] if name else platform.machine(),
        "architecture": platform.machine(),
        "usable_cores": len(os.sched_getaffinity(0)),
        "features": [feature for feature in VECTORS if feature in known],
    }


def memory() -> dict[str, int | None]:
    """`limit` is the cgroup's, None where there is none."""
    fields = dict(re.findall(r"^(\w+):\s+(\d+) kB$", _read("/proc/meminfo"), re.MULTILINE))
    limits = [_limit(path) for path in _cgroup_files()]
    found = [limit for limit in limits if limit is not None]
    return {
        "total": int(fields.get("MemTotal", 0)) * 1024,
        "available": int(fields.get("MemAvailable", 0)) * 1024,
        "limit": min(found) if found else None,
    }


def devices() -> dict[str, object]:
    """The way to an AMD GPU: device nodes, who may open them, and what the kernel says of it."""
    nodes = sorted(Path("/dev/dri").glob("renderD*")) if Path("/dev/dri").exists() else []
    all_nodes = [node for node in (KFD, *nodes) if node.exists()]
    return {
        "kfd": KFD.exists(),
        "nodes": [
            {
                "path": str(node),
                "group": node.stat().st_gid,
                "usable": os.access(node, os.R_OK | os.W_OK),
            }
            for node in all_nodes
        ],
        "groups": sorted({os.getegid(), *os.getgroups()}),
        "gpus": _gpus(),
    }


def packages() -> dict[str, dict[str, str | None]]:
    """Versions by extra; None for what isn't installed."""
    return {extra: {name: _version(name) for name in names} for extra, names in PACKAGES.items()}


def _gpus() -> list[str]:
    """Architectures of the GPUs that the kernel driver knows, such as gfx942."""
    found = []
    for file in sorted(Path("/sys/class/kfd/kfd/topology/nodes").glob("*/properties")):
        match = re.search(r"^gfx_target_version (\d+)$", _read(str(file)), re.MULTILINE)
        if match and int(match[1]):
            number = int(match[1])
            major, minor, step = number // 10000, number // 100 % 100, number % 100
            found.append(f"gfx{major}{minor:x}{step:x}")
    return found


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _cgroup_files() -> list[Path]:
    own = re.search(r"^0::(/.*)$", _read("/proc/self/cgroup"), re.MULTILINE)
    root = Path("/sys/fs/cgroup")
    below = [root / own[1].lstrip("/")] if own else []
    folders = [folder for start in below for folder in (start, *start.parents)]
    files = [folder / "memory.max" for folder in folders if root in (folder, *folder.parents)]
    return [*files, root / "memory" / "memory.limit_in_bytes"]


def _limit(path: Path) -> int | None:
    text = _read(str(path)).strip()
    # Version 1 says "no limit" by a number near 2**63.
    return int(text) if text.isdigit() and int(text) < 1 << 60 else None


def _read(path: str) -> str:
    try:
        return Path(path).read_text(errors="replace")
    except OSError:
        return ""


def provenance() -> dict[str, object]:
    """Date, commit, machine, versions and command, for figures that are kept."""
    described = cpu()
    total = memory()["total"] or 0
    return {
        "date": datetime.now(UTC).date().isoformat(),
        "commit": _commit(),
        "machine": f"{described['name']}, {described['usable_cores']} cores, "
        f"{total / (1 << 30):.0f} GiB",
        "versions": {
            "flatwake": _version("flatwake"),
            "python": platform.python_version(),
            "linux": platform.release(),
        },
        "command": " ".join([Path(sys.argv[0]).name, *sys.argv[1:]]),
    }


def _commit() -> str | None:
    """The checkout's commit, marked if it has been changed; None outside a checkout."""
    words = ["git", "describe", "--always", "--dirty", "--exclude=*"]
    try:
        found = subprocess.run(
            words, cwd=Path(__file__).parent, capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError):
        return None
    return found.stdout.strip()
