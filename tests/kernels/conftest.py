"""Backends under test, and the helpers in `support/` by their own names."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from flatwake_kernels.backend import Backend
from flatwake_kernels.backends import open_backend

sys.path.insert(0, str(Path(__file__).parent / "support"))


@pytest.fixture(scope="session")
def reference() -> Iterator[Backend]:
    backend = open_backend("reference")
    yield backend
    backend.close()


@pytest.fixture(scope="session")
def backend() -> Iterator[Backend]:
    """The CPU library. Folders of other libraries have their own."""
    backend = open_backend("cpu")
    yield backend
    backend.close()
