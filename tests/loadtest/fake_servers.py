"""Fake servers in processes of their own."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from flatwake_loadtest.engine import ready
from flatwake_loadtest.served import Server

HERE = Path(__file__).parent

Start = Callable[..., str]


@contextmanager
def fake_server(*flags: str) -> Iterator[str]:
    """The address of a fake server with these flags, in a process of its own."""
    command = [sys.executable, str(HERE / "fake_server.py"), *flags]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            port = json.loads(process.stdout.readline())["port"]
            yield f"http://127.0.0.1:{port}"
        finally:
            process.kill()


@contextmanager
def supervised(log: Path, *flags: str) -> Iterator[str]:
    """The address of a fake server that is started again whenever it ends."""
    url = f"http://127.0.0.1:{(port := free_port())}"
    command = [sys.executable, str(HERE / "fake_server.py"), "--port", str(port), *flags]
    with Server(command, log) as server:
        while not ready(url):
            assert server.process.poll() is None, log.read_text()
            time.sleep(0.05)
        server.keep()
        yield url


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
