"""A manifest as a target: the server that runs for it here, or one that is started for the run."""

from __future__ import annotations

import http.client
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from flatwake_service.manifest import ManifestError
from flatwake_service.manifest import load as load_manifest

from .errors import LoadError
from .stream import Client

_POLL = 0.25
_STILL = 600.0  # seconds without progress after which a start has failed


@contextmanager
def served(target: str) -> Iterator[str]:
    """The address of what is to be loaded; a server that was started here ends with the block."""
    if "://" in target:
        yield target
        return
    path = Path(target)
    if not path.exists():
        raise LoadError(f"{target} is neither an address (http://…) nor a file")
    try:
        server = load_manifest(path).server
    except ManifestError as error:
        raise LoadError(str(error)) from error
    url = f"http://127.0.0.1:{server.spec.endpoint.port}"
    if _ready(url):
        yield url
        return
    command = [str(Path(sys.executable).with_name("flatwake")), "up", target]
    with subprocess.Popen(command) as process:
        try:
            _wait(url, process)
            yield url
        finally:
            process.terminate()


def _ready(url: str) -> bool:
    try:
        with Client(url, timeout=5) as client:
            return client.get("/ready")[0] == 200
    except (OSError, http.client.HTTPException):
        return False


def _wait(url: str, process: subprocess.Popen[bytes]) -> None:
    """Until it is ready, for as long as it makes progress."""
    seen, since = None, time.monotonic()
    while not _ready(url):
        if process.poll() is not None:
            raise LoadError(f"the server ended with {process.returncode} before it was ready")
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
