"""Fixtures of the operator's tests."""

import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

import apiserver
from apiserver import ApiServer
from flatwake_operator.crd import NAME, PLURAL, definition


@pytest.fixture(scope="session")
def bare_api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiServer]:
    """An API server without our CRD."""
    if not apiserver.available():
        pytest.skip("no kube-apiserver: run `tests/cluster/cluster build` once")
    with apiserver.running(tmp_path_factory.mktemp("api")) as server:
        yield server


@pytest.fixture(scope="session")
def api(bare_api: ApiServer) -> ApiServer:
    """An API server with our CRD established."""
    path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    status, answer = bare_api.call("POST", path, definition())
    assert status == 201, answer["message"]
    _await_established(bare_api, f"{path}/{NAME}")
    return bare_api


def _await_established(server: ApiServer, path: str) -> None:
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        _, answer = server.call("GET", path)
        conditions = {c["type"]: c for c in answer.get("status", {}).get("conditions") or []}
        established = conditions.get("Established", {}).get("status") == "True"
        if established and server.call("GET", f"/apis/flatwake.dev/v1alpha1/{PLURAL}")[0] == 200:
            return
        time.sleep(0.05)  # nothing to wait on but the API
    raise AssertionError(f"the CRD isn't established: {answer}")
