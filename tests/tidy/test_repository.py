"""What a stranger's clone holds: nothing of one machine, no registry's host, no large file."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[2]
LARGEST = 2_000_000
FIXTURE, LARGEST_FIXTURE = ROOT / "tests" / "fixtures" / "hybrid" / "model", 12_000_000
"""A trained model, whose script stands beside it."""
HOSTS = re.compile(
    r"(files\.pythonhosted|pypi\.org|registry\.npmjs|proxy\.golang|deb\.debian|crates\.io)"
)
MACHINE = re.compile(r"(?<![\w.])/(root|home/\w+)/(?!\.\.\.)")


def tracked() -> list[Path]:
    names = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout.splitlines()
    return [ROOT / name for name in names if (ROOT / name).is_file()]


def texts() -> list[tuple[Path, str]]:
    found = []
    for path in tracked():
        if path == Path(__file__):
            continue
        try:
            found.append((path, path.read_text()))
        except UnicodeDecodeError:
            continue
    assert len(found) > 50
    return found


def test_no_file_is_large() -> None:
    others = [p for p in tracked() if FIXTURE not in p.parents]
    assert [str(p) for p in others if p.stat().st_size > LARGEST] == []
    assert sum(p.stat().st_size for p in FIXTURE.iterdir()) < LARGEST_FIXTURE


def test_no_registry_host_is_written_down() -> None:
    assert [str(p) for p, text in texts() if HOSTS.search(text)] == []


def test_no_path_of_one_machine_is_written_down() -> None:
    assert [str(p) for p, text in texts() if MACHINE.search(text)] == []
