"""A manifest as a target: the server that runs for it here, or one that is started for the run."""

from __future__ import annotations

import http.client
import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from flatwake_service.manifest import ManifestError
from flatwake_service.manifest import load as load_manifest

from .engine import ready
from .errors import LoadError
from .stream import Client

_POLL = 0.25
_STILL = 600.0  # seconds without progress after which a start has failed


@dataclass(frozen=True)
class Place:
    """Where a server is, and the length of its queue if a manifest says it."""

    url: str
    queue: int | None = None


@contextmanager
def served(target: str, log: Path, restart: bool = False) -> Iterator[Place]:
    """What is to be loaded; a server started here writes to `log` and ends with the block.

    With `restart` one that was started here is started again whenever it ends, as a kubelet would.
    """
    if "://" in target:
        yield Place(target)
        return
    path = Path(target)
    if not path.exists():
        raise LoadError(f"{target} is neither an address (http://…) nor a file")
    try:
        server = load_manifest(path).server
    except ManifestError as error:
        raise LoadError(str(error)) from error
    url = f"http://127.0.0.1:{server.spec.endpoint.port}"
    place = Place(url, server.spec.limits.queue)
    if ready(url):
        yield place
        return
    log.parent.mkdir(parents=True, exist_ok=True)
    with Server([str(Path(sys.executable).with_name("flatwake")), "up", target], log) as started:
        _wait(url, started, log)
        if restart:
            started.keep()
        yield place


class Server:
    """A server's command as a child, which is asked to drain when the block ends."""

    def __init__(self, command: list[str], log: Path) -> None:
        self._command = command
        self._said = log.open("wb")
        self._leaving = threading.Event()
        self._keeper: threading.Thread | None = None
        self.process = self._start()

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *_: object) -> None:
        self._leaving.set()
        if self._keeper is not None:
            self._keeper.join()
        self.process.send_signal(signal.SIGINT)  # drains, without the wait for a router
        self.process.wait()
        self._said.close()

    def keep(self) -> None:
        """Starts it again whenever it ends, from now on."""
        self._keeper = threading.Thread(target=self._keep, name="keeper", daemon=True)
        self._keeper.start()

    def _keep(self) -> None:
        while not self._leaving.wait(_POLL):
            if self.process.poll() is not None:
                self.process = self._start()

    def _start(self) -> subprocess.Popen[bytes]:
        return subprocess.Popen(self._command, stdout=self._said, stderr=self._said)


def _wait(url: str, server: Server, log: Path) -> None:
    """Until it is ready, for as long as it makes progress."""
    seen, since = None, time.monotonic()
    while not ready(url):
        if server.process.poll() is not None:
            last = log.read_text(errors="replace").strip().splitlines()[-1:]
            code = server.process.returncode
            raise LoadError(f"the server ended with {code} before it was ready: {''.join(last)}")
        progress = _progress(url)
        if progress != seen:
            seen, since = progress, time.monotonic()
        if time.monotonic() - since > _STILL:
            raise LoadError(f"the server made no progress for {_STILL:.0f} s; last: {seen}")
        time.sleep(_POLL)


def _progress(url: str) -> str:
    try:
        with Client(url, timeout=5) as client:
            status = json.loads(client.get("/status")[1])
    except (OSError, http.client.HTTPException, ValueError):
        return "no answer"
    return f"{status.get('phase')} {(status.get('model') or {}).get('bytes_done')}"
