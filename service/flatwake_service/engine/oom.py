"""Whether the kernel killed something here for want of memory."""

from __future__ import annotations

import re
from pathlib import Path

# As a container sees its own cgroup: version 2, then version 1.
FILES = (
    Path("/sys/fs/cgroup/memory.events"),
    Path("/sys/fs/cgroup/memory/memory.oom_control"),
)
_KILLS = re.compile(r"^oom_kill (\d+)$", re.MULTILINE)


def oom_kills() -> int | None:
    """Processes of this cgroup that the kernel has killed for memory; None: it doesn't say."""
    for file in FILES:
        try:
            found = _KILLS.search(file.read_text())
        except OSError:
            continue
        if found:
            return int(found[1])
    return None
