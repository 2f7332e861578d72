"""API keys in Secrets, which the operator never reads: the kubelet brings them to the pods."""

from __future__ import annotations

import base64
import time
import urllib.error
import urllib.request

import pytest
from testcluster.hub import Hub
from testcluster.kube import Kube, Object
from testcluster.network import call_inside
from testcluster.servers import Server, example

IN_FORCE_S = 150

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


def secret(name: str, key: str) -> Object:
    data = {"key": base64.b64encode(key.encode()).decode()}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "data": data}


def apply_server(kube: Kube, hub: Hub, namespace: str, name: str) -> Server:
    """A server that asks for keys, from a Secret of its own name."""
    manifest = example(
        "smollm2.yaml",
        hub,
        engine={"contextLength": 512, "maxSequences": 2},
        accelerator={"backend": "Cpu"},
        access={"apiKeysSecret": {"name": name}},
    )
    manifest["metadata"]["name"] = name
    kube.apply(manifest, namespace=namespace)
    return Server(kube, namespace, name)


def accepts(server: Server, key: str) -> bool:
    """Whether a key opens the list of models."""
    headers = {"Authorization": f"Bearer {key}"}
    asked = urllib.request.Request(f"{server.inside_url()}/models", headers=headers)

    def ask() -> bool:
        try:
            with urllib.request.urlopen(asked, timeout=10) as answer:
                return bool(answer.status == 200)
        except urllib.error.HTTPError as error:
            if error.code != 401:
                raise
            return False

    return call_inside(server.kube.cluster, ask)


def test_a_missing_secret_and_a_changed_one_are_in_force_in_time_and_roll_nothing(
    kube: Kube, release: str, hub: Hub, namespace: str
) -> None:
    kube.apply(secret("changed", "first"), namespace=namespace)
    changed = apply_server(kube, hub, namespace, "changed")
    missing = apply_server(kube, hub, namespace, "missing")
    changed.wait_for("Ready", timeout_s=240)
    named = missing.wait_for("Ready", "False", "KeysMissing", timeout_s=240)
    assert "spec.access.apiKeysSecret" in named["message"]
    assert accepts(changed, "first")
    assert not accepts(changed, "second")
    servers = (changed, missing)
    pods = {server.name: {p["metadata"]["uid"] for p in server.pods()} for server in servers}

    kube.apply(secret("changed", "second"), secret("missing", "late"), namespace=namespace)
    began = time.monotonic()
    kube.until(
        "the new key opens and the old one doesn't",
        lambda: accepts(changed, "second") and not accepts(changed, "first"),
        namespaces=[namespace],
        timeout_s=IN_FORCE_S,
    )
    print(f"a changed key is in force after {time.monotonic() - began:.0f} s")
    missing.wait_for("Ready", timeout_s=max(1.0, IN_FORCE_S - (time.monotonic() - began)))
    print(f"a created Secret is in force after {time.monotonic() - began:.0f} s")
    for server in servers:
        assert {p["metadata"]["uid"] for p in server.pods()} == pods[server.name]
        for pod in server.pods():
            assert pod["status"]["containerStatuses"][0]["restartCount"] == 0
