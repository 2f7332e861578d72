"""What this machine and this process's control groups leave of the host's memory."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path, PurePosixPath

_FILES = {
    "": ("memory.max", "memory.current", ("inactive_file", "active_file")),
    "memory": (
        "memory.limit_in_bytes",
        "memory.usage_in_bytes",
        ("total_inactive_file", "total_active_file"),
    ),
}
"""By controller (version 2 has none): limit, use, and what of the use is file cache."""


def host_free(root: Path = Path("/")) -> int:
    """Bytes that this process may still take: the least of MemAvailable and of the room in its
    control group and in each one above it. Cached files count as free, as in MemAvailable: the
    kernel drops them before it refuses memory, and a model that was just read is among them.
    """
    free = _entry(root / "proc/meminfo", "MemAvailable:") * 1024
    for folder, (limit, use, cached) in _groups(root):
        most, used = _number(folder / limit), _number(folder / use)
        if most is not None and used is not None:
            cache = sum(_entry(folder / "memory.stat", name) for name in cached)
            free = min(free, max(0, most - used + cache))
    return free


def _groups(root: Path) -> Iterator[tuple[Path, tuple[str, str, tuple[str, str]]]]:
    """Folders of this process's groups, up to the root, and the files to look at there."""
    mount = root / "sys/fs/cgroup"
    # Inside a container the path may be the host's, of which only the root is there.
    paths = {"": PurePosixPath("/"), "memory": PurePosixPath("/")}
    for line in _lines(root / "proc/self/cgroup"):
        _, controllers, path = line.split(":", 2)
        for name in controllers.split(","):
            if name in paths:
                paths[name] = PurePosixPath(path)
    for name, own in paths.items():
        for group in (own, *own.parents):
            yield mount / name / str(group).strip("/"), _FILES[name]


def _entry(path: Path, name: str) -> int:
    """The number behind a name in a file of lines; 0 if it isn't there."""
    for line in _lines(path):
        key, value = line.split()[:2]
        if key == name:
            return int(value)
    return 0


def _number(path: Path) -> int | None:
    """None where there is no limit."""
    lines = _lines(path)
    return int(lines[0]) if lines and lines[0].isdigit() else None


def _lines(path: Path) -> list[str]:
    try:
        return [line for line in path.read_text().splitlines() if line.strip()]
    except OSError:
        return []
