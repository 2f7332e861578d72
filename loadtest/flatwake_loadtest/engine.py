"""The engine process of a server on this machine: found, and struck on purpose.

Only a process that the server names as its engine, and that the kernel names as that server's own
child, is ever signalled.
"""

from __future__ import annotations

import http.client
import json
import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from .errors import LoadError
from .stream import Client

LOCAL = ("127.0.0.1", "localhost", "::1")
_NO_ANSWER = (OSError, http.client.HTTPException, ValueError)


@dataclass(frozen=True)
class Engine:
    """Process ids of a server and of its engine."""

    api: int
    pid: int

    @classmethod
    def find(cls, url: str, api_key: str | None = None) -> Engine:
        """Raises LoadError when there is none that may be struck."""
        with Client(url, api_key, timeout=10) as client:
            pids = json.loads(client.get("/status")[1]).get("pids") or {}
        api, pid = pids.get("api"), pids.get("engine")
        if urlsplit(url).hostname not in LOCAL or not api or not pid or _parent(pid) != api:
            raise LoadError(
                f"{url}: its engine is no process of this machine, so the waves kill and hang "
                "can't strike it; run them beside the server"
            )
        return cls(int(api), int(pid))

    def strike(self, number: signal.Signals) -> None:
        os.kill(self.pid, number)


def ready(url: str) -> bool:
    """Whether the server takes requests; False when it doesn't answer either."""
    try:
        with Client(url, timeout=5) as client:
            return client.get("/ready")[0] == 200
    except _NO_ANSWER:
        return False


def watch_fall(url: str, patience: float) -> float | None:
    """Seconds until the server no longer says that it is ready; None if it goes on saying so."""
    began = time.monotonic()
    while time.monotonic() - began < patience:
        if not ready(url):
            return time.monotonic() - began
        time.sleep(0.02)
    return None


def await_return(url: str, before: Engine, patience: float) -> float | None:
    """Seconds until a ready server with another engine answers; None if none does."""
    began = time.monotonic()
    while time.monotonic() - began < patience:
        try:
            if ready(url) and Engine.find(url) != before:
                return time.monotonic() - began
        except (*_NO_ANSWER, LoadError):
            pass  # it ends, or it starts: in between it may answer anything
        time.sleep(0.1)
    return None


def _parent(pid: int) -> int | None:
    try:
        text = (Path("/proc") / str(pid) / "stat").read_text()
    except OSError:
        return None
    # The name, in parentheses, may hold spaces.
    return int(text.rpartition(")")[2].split()[1])
