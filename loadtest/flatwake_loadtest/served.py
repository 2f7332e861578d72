"""A manifest as a target: the server that runs for it here, or one that is started for the run."""

from __future__ import annotations

import http.client
import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from flatwake_service.manifest import ManifestError
from flatwake_service.manifest import load as load_manifest

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
def served(target: str, log: Path) -> Iterator[Place]:
    """What is to be loaded; a server started here writes to `log` and ends with the block."""
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
    if _ready(url):
        yield place
        return
    command = [str(Path(sys.executable).with_name("flatwake")), "up", target]
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("wb") as said, subprocess.Popen(command, stdout=said, stderr=said) as process:
        try:
            _wait(url, process, log)
            yield place
        finally:
            process.send_signal(signal.SIGINT)  # drains, without the wait for a router


def _ready(url: str) -> bool:
    try:
        with Client(url, timeout=5) as client:
            return client.get("/ready")[0] == 200
    except (OSError, http.client.HTTPException):
        return False


def _wait(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    """Until it is ready, for as long as it makes progress."""
    seen, since = None, time.monotonic()
    while not _ready(url):
        if process.poll() is not None:
            last = log.read_text(errors="replace").strip().splitlines()[-1:]
            code = process.returncode
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
