"""What a process may still take of a machine's memory."""

from __future__ import annotations

from pathlib import Path

import pytest
from flatwake_service.engine.host import host_free

GB = 10**9


def machine(root: Path, group: str, files: dict[str, str]) -> Path:
    """A machine with 100 GB available, this process's groups, and their files."""
    for name, text in {
        "proc/meminfo": f"MemTotal: {200 * GB // 1024} kB\nMemAvailable: {100 * GB // 1024} kB\n",
        "proc/self/cgroup": group,
        **{f"sys/fs/cgroup/{name}": text for name, text in files.items()},
    }.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def v2(
    limit: int | str, used: int, inactive: int = 0, active: int = 0, at: str = ""
) -> dict[str, str]:
    return {
        f"{at}memory.max": f"{limit}\n",
        f"{at}memory.current": f"{used}\n",
        f"{at}memory.stat": f"anon 5\ninactive_file {inactive}\nactive_file {active}\n",
    }


@pytest.mark.parametrize(
    ("group", "files", "free"),
    [
        ("0::/\n", {}, 100 * GB),
        ("0::/\n", v2("max", 0), 100 * GB),
        ("0::/\n", v2(6 * GB, 5 * GB), GB),
        # A model of 4 GB that was just read is no reason to think that the pod is full.
        ("0::/\n", v2(6 * GB, 5 * GB, 3 * GB, GB), 5 * GB),
        ("0::/\n", v2(6 * GB, 7 * GB), 0),
        # systemd's MemoryMax binds the service's own group, or one above it.
        ("0::/a/b.service\n", v2("max", 0) | v2(8 * GB, 2 * GB, at="a/b.service/"), 6 * GB),
        ("0::/a/b.service\n", v2("max", 0, at="a/b.service/") | v2(8 * GB, GB, at="a/"), 7 * GB),
        # A container that sees the host's path, but only its own group.
        ("0::/kubepods/pod7\n", v2(6 * GB, 5 * GB), GB),
        (
            "3:memory:/x\n2:cpu:/y\n",
            {
                "memory/x/memory.limit_in_bytes": str(6 * GB),
                "memory/x/memory.usage_in_bytes": str(5 * GB),
                "memory/x/memory.stat": f"total_inactive_file {2 * GB}\ntotal_active_file 0\n",
                "memory/memory.limit_in_bytes": str(2**63 - 4096),
                "memory/memory.usage_in_bytes": "0",
            },
            3 * GB,
        ),
    ],
)
def test_the_least_room_counts(
    tmp_path: Path, group: str, files: dict[str, str], free: int
) -> None:
    assert host_free(machine(tmp_path, group, files)) == pytest.approx(free, abs=1024)
