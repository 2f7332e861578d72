"""Backends under test, and the helpers in `support/` by their own names."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from flatwake_kernels.backend import Backend, BackendUnavailable
from flatwake_kernels.backends import open_backend

sys.path.insert(0, str(Path(__file__).parent / "support"))


def _instruction_sets() -> list[str]:
    """All that this machine can run; a library that isn't built fails the tests, with the cure."""
    try:
        backend = open_backend("cpu")
    except BackendUnavailable:
        return ["auto"]
    found = list(backend.device.features)
    backend.close()
    return found


@pytest.fixture(scope="session")
def reference() -> Iterator[Backend]:
    backend = open_backend("reference")
    yield backend
    backend.close()


@pytest.fixture(scope="session", params=_instruction_sets())
def backend(request: pytest.FixtureRequest) -> Iterator[Backend]:
    """The CPU library, once an instruction set. Folders of other libraries have their own."""
    backend = open_backend("cpu", threads=2, settings={"isa": request.param})
    yield backend
    backend.close()


@pytest.fixture(params=["reference", "cpu"])
def any_backend(request: pytest.FixtureRequest) -> Iterator[Backend]:
    """Whatever should behave alike."""
    backend = open_backend(request.param)
    yield backend
    backend.close()
