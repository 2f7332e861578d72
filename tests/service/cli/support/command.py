"""`flatwake …` as a process, watched by its log."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import httpx

PATIENCE = 120.0
FLATWAKE = Path(sys.executable).with_name("flatwake")


class Command:
    """A running command. `lines` is what it has said on standard error so far."""

    def __init__(self, *arguments: str, **options: Any) -> None:
        self.lines: list[str] = []
        self._changed = threading.Condition()
        self.process = subprocess.Popen(
            [FLATWAKE, *arguments], stderr=subprocess.PIPE, text=True, **options
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            with self._changed:
                self.lines.append(line)
                self._changed.notify_all()
        with self._changed:
            self._changed.notify_all()

    def __enter__(self) -> Command:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self._reader.join()
        assert self.process.stderr is not None
        self.process.stderr.close()

    @property
    def said(self) -> str:
        return "".join(self.lines)

    def wait_for(self, pattern: str) -> re.Match[str]:
        """The first match in what it says."""
        end = time.monotonic() + PATIENCE
        with self._changed:
            while (found := re.search(pattern, self.said)) is None:
                assert self._reader.is_alive(), f"it ended without {pattern!r}:\n{self.said}"
                left = end - time.monotonic()
                assert left > 0, f"it never said {pattern!r}:\n{self.said}"
                self._changed.wait(left)
        return found

    def endpoint(self) -> str:
        """Where it serves, once it does."""
        return self.wait_for(r"INFO serving endpoint=(\S+)")[1]

    def engine(self) -> int:
        return int(self.wait_for(r"engine started pid=(\d+)")[1])

    def signal(self, number: int = signal.SIGTERM) -> None:
        self.process.send_signal(number)

    def ended(self) -> int:
        code = self.process.wait(PATIENCE)
        self._reader.join()
        return code


def used_blocks(endpoint: str) -> float:
    return _metric(endpoint, 'flatwake_kv_blocks{state="used"}')


def comes_to_rest(endpoint: str) -> None:
    """No request and no used block is left, soon."""
    end = time.monotonic() + 30
    while used_blocks(endpoint) or _metric(endpoint, "flatwake_requests_in_flight"):
        assert time.monotonic() < end, "something is left"


def _metric(endpoint: str, name: str) -> float:
    text = httpx.get(f"{endpoint.removesuffix('/v1')}/metrics").text
    found = re.search(rf"^{re.escape(name)} (\S+)$", text, re.MULTILINE)
    assert found is not None
    return float(found[1])
