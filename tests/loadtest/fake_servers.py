"""Fake servers in processes of their own."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

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
