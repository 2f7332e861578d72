"""A process's memory and handles, from /proc."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path

PSS_EVERY = 60.0
"""Seconds. The kernel walks every page for it, under a lock that page faults of a model want."""


@dataclass(frozen=True)
class Usage:
    """Bytes and counts; None where the process is gone or the kernel doesn't say."""

    rss_anon: int | None = None
    swap: int | None = None
    pss: int | None = None
    open_files: int | None = None
    threads: int | None = None


class Process:
    """One process, by id."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._folder = Path(f"/proc/{pid}")
        self._pss: int | None = None
        self._pss_read = -PSS_EVERY

    def usage(self) -> Usage:
        """What it uses now; takes a system call or four, and milliseconds once a minute."""
        fields = _fields(self._folder / "status")
        now = time.monotonic()
        if now - self._pss_read >= PSS_EVERY:
            self._pss = _bytes(_fields(self._folder / "smaps_rollup").get("Pss"))
            self._pss_read = now
        threads = fields.get("Threads")
        return Usage(
            rss_anon=_bytes(fields.get("RssAnon")),
            swap=_bytes(fields.get("VmSwap")),
            pss=self._pss,
            open_files=self._open_files(),
            threads=int(threads) if threads else None,
        )

    def _open_files(self) -> int | None:
        try:
            return len(os.listdir(self._folder / "fd"))
        except OSError:
            return None


class Processes:
    """Both processes' readings; the engine's starts anew with its pid."""

    def __init__(self) -> None:
        self._api = Process(os.getpid())
        self._engine: Process | None = None

    def usage(self, engine_pid: int | None) -> dict[str, Usage]:
        if engine_pid is None:
            self._engine = None
        elif self._engine is None or self._engine.pid != engine_pid:
            self._engine = Process(engine_pid)
        usage = {"api": self._api.usage()}
        if self._engine is not None:
            usage["engine"] = self._engine.usage()
        return usage


def _fields(file: Path) -> dict[str, str]:
    try:
        text = file.read_text()
    except OSError:
        return {}
    pairs = (line.split(":", 1) for line in text.splitlines() if ":" in line)
    return {name: value.strip() for name, value in pairs}


def _bytes(text: str | None) -> int | None:
    """`"12 kB"` as bytes."""
    return int(text.split()[0]) * 1024 if text else None
