from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

# pytest's importlib mode adds no folder to the path; the helpers beside the tests are wanted here.
sys.path.insert(0, str(Path(__file__).parent))

from fake_servers import Start, fake_server


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
