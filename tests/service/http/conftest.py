"""Servers over a fake engine, one a test module."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent / "support"))

from served import Served


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    """A server of default settings; what a module wants otherwise, it starts itself."""
    with Served() as server:
        yield server
        server.assert_idle()
