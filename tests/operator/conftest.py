"""Fixtures of the operator's tests."""

import json
import os
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))

import apiserver
from apiserver import ApiServer
from flatwake_operator.crd import NAME, PLURAL, definition


@pytest.fixture(scope="session")
def bare_api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiServer]:
    """An API server without our CRD."""
    if not apiserver.available():
        missing = "kube-apiserver isn't built: `make cluster-build` builds it"
        if os.environ.get("CI") == "true":
            pytest.fail(missing, pytrace=False)
        pytest.skip(missing)
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


class StatusServer(ThreadingHTTPServer):
    """Answers /status of pods, which differ by their loopback address."""

    def __init__(self) -> None:
        super().__init__(("0.0.0.0", 0), _Status)
        self.reports: dict[str, dict[str, Any]] = {}

    @property
    def port(self) -> int:
        return int(self.server_address[1])


class _Status(BaseHTTPRequestHandler):
    server: StatusServer

    def do_GET(self) -> None:
        report = self.server.reports.get(self.connection.getsockname()[0])
        body = json.dumps(report or {}).encode()
        self.send_response(200 if report else 404)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Says nothing."""


@pytest.fixture
def status_server() -> Iterator[StatusServer]:
    with StatusServer() as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()
