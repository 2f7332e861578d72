"""A real API server with its etcd and nothing else, as the operator's tests speak to it."""

import contextlib
import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import httpx
from flatwake_operator.settings import Object
from testcluster import components, session


@dataclass(frozen=True)
class ApiServer:
    """token: of a cluster admin. plain_token: of a user called `plain`, who has no rights."""

    url: str
    token: str
    plain_token: str
    client: httpx.Client

    def call(
        self, method: str, path: str, body: Any = None, content: str = "application/json"
    ) -> tuple[int, Any]:
        """One request as cluster-admin; returns the status and the parsed answer."""
        answer = self.client.request(
            method,
            self.url + path,
            content=None if body is None else json.dumps(body).encode(),
            headers={"Authorization": f"Bearer {self.token}", "Content-Type": content},
        )
        try:
            return answer.status_code, answer.json()
        except ValueError:
            return answer.status_code, answer.text

    def kubeconfig(self) -> dict[str, Any]:
        return {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "test",
            "clusters": [
                {
                    "name": "test",
                    "cluster": {"server": self.url, "insecure-skip-tls-verify": True},
                }
            ],
            "users": [{"name": "test", "user": {"token": self.token}}],
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
        }


@contextlib.contextmanager
def running(prefix: str = "a", services: str = "") -> Iterator[ApiServer]:
    """For the length of a block. services: the ranges of Services' addresses, else one of IPv4."""
    with (
        session.temporary(prefix, api_only=True, services=services) as cluster,
        httpx.Client(verify=False, timeout=30, trust_env=False) as client,
    ):
        tokens = components.tokens(cluster)
        url = f"https://127.0.0.1:{components.Ports.of(cluster).api}"
        yield ApiServer(url, tokens["admin"], tokens["plain"], client)


def install(server: ApiServer, definition: Object) -> None:
    """A CRD, served."""
    path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    status, answer = server.call("POST", path, definition)
    assert status == 201, answer["message"]
    spec = definition["spec"]
    roots = [f"/apis/{spec['group']}/{version['name']}" for version in spec["versions"]]
    served = f"{roots[0]}/{spec['names']['plural']}"
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        _, answer = server.call("GET", f"{path}/{definition['metadata']['name']}")
        conditions = {c["type"]: c for c in answer.get("status", {}).get("conditions") or []}
        established = conditions.get("Established", {}).get("status") == "True"
        if established and server.call("GET", served)[0] == 200:
            return
        time.sleep(0.05)  # nothing to wait on but the API
    raise AssertionError(f"the CRD isn't established: {answer}")
