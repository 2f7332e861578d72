"""Running programs, writing files, and telling a person what goes on."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


class ClusterError(Exception):
    """What the machine or the user must change. The message says what."""


def say(*words: object) -> None:
    print("cluster:", *words, file=sys.stderr, flush=True)


def run(*command: str | Path, env: dict[str, str] | None = None, cwd: Path | None = None) -> None:
    """Run a program whose output goes to stderr; its failure is a ClusterError."""
    words = [str(word) for word in command]
    done = subprocess.run(words, env=env, cwd=cwd, stdout=sys.stderr, check=False)
    if done.returncode:
        raise ClusterError(f"`{' '.join(words)[:300]}` ended with {done.returncode}")


def output(*command: str | Path) -> str:
    """What a program prints; its failure is a ClusterError with the end of its stderr."""
    words = [str(word) for word in command]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode:
        raise ClusterError(f"`{' '.join(words)[:300]}`: {done.stderr.strip()[-400:]}")
    return done.stdout


def write(path: Path, text: str, mode: int = 0o644) -> None:
    """Replace a file at once, so that a reader never sees half of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(path.name + ".part")
    part.write_text(text)
    part.chmod(mode)
    part.replace(path)


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """One process at a time; the others wait and say so."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(f"waiting for another process that holds {path}")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def process_start(pid: int) -> str | None:
    """Start time of a living process, so that a recycled number is never signalled."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    fields = text[text.rindex(")") + 2 :].split()
    return None if fields[0] in "ZX" else fields[19]


def search_path() -> str:
    """PATH with the system folders that a plain user's lacks."""
    return os.environ.get("PATH", "") + ":/usr/local/go/bin:/usr/sbin:/usr/bin:/sbin:/bin"
