"""Fixtures of the operator's tests."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "cluster"))
sys.path.insert(0, str(Path(__file__).parent))

import apiserver
import statuses
from apiserver import ApiServer
from flatwake_operator import crd
from statuses import StatusServer
from testcluster import crds, session


@pytest.fixture(scope="session")
def binaries() -> None:
    """An API server can be started here."""
    session.require(session.missing_for_api())


@pytest.fixture(scope="session")
def bare_api(binaries: None) -> Iterator[ApiServer]:
    """An API server without our CRD."""
    with apiserver.running() as server:
        yield server


@pytest.fixture(scope="session")
def api(bare_api: ApiServer) -> ApiServer:
    """An API server with our CRD established."""
    apiserver.install(bare_api, crd.definition())
    return bare_api


@pytest.fixture(scope="session")
def full_api(binaries: None) -> Iterator[ApiServer]:
    """One that serves every API that the operator makes use of, ours included."""
    session.require(crds.missing())
    with apiserver.running("g") as server:
        for definition in (crd.definition(), *crds.documents()):
            apiserver.install(server, definition)
        yield server


@pytest.fixture
def status_server() -> Iterator[StatusServer]:
    with statuses.answering("0.0.0.0") as server:
        yield server
