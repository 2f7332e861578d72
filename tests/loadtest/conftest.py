from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

HERE = Path(__file__).parent
# pytest's importlib mode adds no folder to the path; the helpers beside the tests are wanted here.
sys.path.insert(0, str(HERE))

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


@pytest.fixture
def start() -> Iterator[Start]:
    """Starts fake servers: start("--leak", "2000") gives an address."""
    with ExitStack() as stack:
        yield lambda *flags: stack.enter_context(fake_server(*flags))


@pytest.fixture(scope="module")
def steady_server() -> Iterator[str]:
    """One well-behaved server for the tests that change nothing about it."""
    with fake_server() as url:
        yield url
