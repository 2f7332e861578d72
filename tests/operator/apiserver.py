"""A real API server with its etcd and nothing else: no controllers, no nodes.

The binaries are those of `tests/cluster/cluster build`; FLATWAKE_KUBE_BIN names another folder.
"""

import contextlib
import json
import os
import secrets
import socket
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx


def bin_folder() -> Path:
    """Where kube-apiserver and etcd are expected."""
    cache = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    cluster = os.environ.get("CLUSTER_DIR") or f"{cache}/flatwake/cluster"
    return Path(os.environ.get("FLATWAKE_KUBE_BIN") or f"{cluster}/bin")


def available() -> bool:
    return all((bin_folder() / name).exists() for name in ("kube-apiserver", "etcd"))


@dataclass(frozen=True)
class ApiServer:
    """token: of a cluster admin. operator_token: of a user called operator, without rights."""

    url: str
    token: str
    operator_token: str
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


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextlib.contextmanager
def running(folder: Path) -> Iterator[ApiServer]:
    """Starts both, yields when the API is ready, ends both."""
    token, operator = secrets.token_hex(16), secrets.token_hex(16)
    users = (f'{token},admin,admin,"system:masters"', f"{operator},operator,operator")
    (folder / "tokens.csv").write_text("\n".join(users))
    subprocess.run(
        ["openssl", "genrsa", "-out", folder / "account.key", "2048"],
        check=True,
        capture_output=True,
    )
    etcd, peer, port = _free_port(), _free_port(), _free_port()
    with contextlib.ExitStack() as stack:
        _start(
            stack,
            folder / "etcd.log",
            "etcd",
            f"--data-dir={folder}/etcd",
            f"--listen-client-urls=http://127.0.0.1:{etcd}",
            f"--advertise-client-urls=http://127.0.0.1:{etcd}",
            f"--listen-peer-urls=http://127.0.0.1:{peer}",
            f"--initial-advertise-peer-urls=http://127.0.0.1:{peer}",
            f"--initial-cluster=default=http://127.0.0.1:{peer}",
            "--unsafe-no-fsync",
        )
        process = _start(
            stack,
            folder / "apiserver.log",
            "kube-apiserver",
            f"--etcd-servers=http://127.0.0.1:{etcd}",
            f"--cert-dir={folder}/certs",
            "--bind-address=127.0.0.1",
            f"--secure-port={port}",
            f"--token-auth-file={folder}/tokens.csv",
            "--authorization-mode=RBAC",
            "--service-account-issuer=https://test",
            f"--service-account-key-file={folder}/account.key",
            f"--service-account-signing-key-file={folder}/account.key",
            "--service-cluster-ip-range=10.96.0.0/16",
            "--disable-admission-plugins=ServiceAccount",
            "--watch-cache=true",
        )
        # Its certificate is made at start and signs itself.
        client = stack.enter_context(httpx.Client(verify=False, timeout=30, trust_env=False))
        server = ApiServer(f"https://127.0.0.1:{port}", token, operator, client)
        _await_ready(server, process, folder / "apiserver.log")
        yield server


def _start(
    stack: contextlib.ExitStack, log: Path, name: str, *arguments: str
) -> subprocess.Popen[bytes]:
    output = stack.enter_context(log.open("wb"))
    process = subprocess.Popen(
        [bin_folder() / name, *arguments], stdout=output, stderr=subprocess.STDOUT
    )

    def end() -> None:
        process.kill()
        process.wait()

    stack.callback(end)
    return process


def _await_ready(server: ApiServer, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        if process.poll() is not None:
            break
        with contextlib.suppress(httpx.HTTPError):
            # The default namespace comes a moment after readiness.
            paths = ("/readyz", "/api/v1/namespaces/default")
            if all(server.call("GET", path)[0] == 200 for path in paths):
                return
        time.sleep(0.1)  # nothing to wait on but the socket
    raise RuntimeError(f"the API server didn't start:\n{log.read_text()[-3000:]}")
