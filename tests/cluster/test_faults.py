"""What goes wrong is named by a condition, and its cure is picked up by itself."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from testcluster import volumes
from testcluster.hub import DIGEST, FILE, Hub
from testcluster.kube import Kube, KubectlError, Object
from testcluster.servers import Server, example
from testcluster.volumes import Volume

STOPPED_S = "5s"
GATED, TOKEN = "gated.gguf", "open-sesame"
Make = Callable[..., Server]


@pytest.fixture(scope="module")
def make(kube: Kube, release: str, hub: Hub, module_namespace: str) -> Make:
    """Applies a server that is as given in some parts and in all others well."""

    def one(name: str, model: Object | None = None, **spec: Any) -> Server:
        engine = {"contextLength": 512, "maxSequences": 2}
        manifest = example(
            "smollm2.yaml", hub, engine=engine, accelerator={"backend": "Cpu"}, **spec
        )
        manifest["metadata"]["name"] = name
        manifest["spec"]["model"] |= model or {}
        kube.apply(manifest, namespace=module_namespace)
        return Server(kube, module_namespace, name)

    return one


@pytest.fixture(scope="module")
def volume(kube: Kube, module_namespace: str) -> Iterator[Volume]:
    """What holds the model of server `full`."""
    with volumes.small(kube, module_namespace, "full-cache", "20m") as made:
        yield made


@pytest.fixture(scope="module")
def gated(hub: Hub) -> Object:
    """A model whose source asks for a token, and where that will be."""
    hub.files[GATED], hub.tokens[GATED] = hub.files[FILE], TOKEN
    return {"source": hub.url(GATED), "tokenSecret": {"name": "hub", "key": "token"}}


@pytest.fixture(scope="module")
def broken(make: Make, volume: Volume, gated: Object) -> dict[str, Server]:
    """Servers with a fault each. They are made at once, as each takes a while to fail."""
    environment = [
        {"name": "SETTING", "valueFrom": {"secretKeyRef": {"name": "absent", "key": "setting"}}}
    ]
    return {
        server.name: server
        for server in (
            make("digest", model={"digest": "sha256:" + "0" * 64}),
            make("full", model={"cache": {"size": "500Mi", "claim": {}}}),
            make("secret", template={"env": environment}),
            make("crash", template={"env": [{"name": "PYTHONHOME", "value": "/nowhere"}]}),
            make("memory", template={"resources": {"limits": {"memory": "100Mi"}}}),
            make("gated", model=gated),
        )
    }


def recovers(server: Server) -> None:
    """It serves, without anything having been restarted by hand; then it makes room."""
    server.wait_for("Ready", timeout_s=240)
    server.kube.kubectl("-n", server.namespace, "delete", "infs", server.name, "--timeout=60s")


def test_a_wrong_digest_is_named(broken: dict[str, Server]) -> None:
    server = broken["digest"]
    found = server.wait_for("ModelReady", "False", "DigestMismatch", timeout_s=120)
    assert DIGEST in found["message"]
    row = server.row()
    assert (row["READY"], row["REASON"]) == ("False", "DigestMismatch")
    assert "DigestMismatch" in server.kube.kubectl(
        "-n", server.namespace, "describe", "infs", server.name
    )
    server.patch({"model": {"digest": f"sha256:{DIGEST}"}})
    recovers(server)


def test_a_full_volume_is_named(broken: dict[str, Server], volume: Volume) -> None:
    server = broken["full"]
    server.wait_for("ModelReady", "False", "CacheFull", timeout_s=120)
    volume.grow("300m")
    recovers(server)


def test_a_missing_secret_is_named(broken: dict[str, Server]) -> None:
    server = broken["secret"]
    found = server.wait_for("ModelReady", "False", "ContainerConfig", timeout_s=120)
    assert 'secret "absent" not found' in found["message"]
    server.kube.apply(secret("absent", "setting", "1"), namespace=server.namespace)
    recovers(server)


def test_a_missing_token_is_named_and_one_that_comes_is_used(broken: dict[str, Server]) -> None:
    server = broken["gated"]
    found = server.wait_for("ModelReady", "False", "SourceDenied", timeout_s=120)
    assert "spec.model.tokenSecret" in found["message"]
    waiting = server.only_pod()["metadata"]["uid"]
    server.kube.apply(secret("hub", "token", TOKEN), namespace=server.namespace)
    server.wait_for("Ready", timeout_s=240)
    assert server.ready_pods() == {waiting}, "no pod was made for it"
    recovers(server)


def secret(name: str, key: str, value: str) -> Object:
    data = {key: base64.b64encode(value.encode()).decode()}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "data": data}


def test_a_crash_loop_is_named(broken: dict[str, Server]) -> None:
    server = broken["crash"]
    found = server.wait_for("ModelReady", "False", "CrashLoop", timeout_s=120)
    assert "kubectl logs" in found["message"]
    server.patch({"template": {"env": []}})
    recovers(server)


def test_too_little_memory_is_named(broken: dict[str, Server]) -> None:
    server = broken["memory"]
    found = server.wait_for("ModelReady", "False", "OOMKilled", timeout_s=180)
    assert "spec.template.resources.limits.memory" in found["message"]
    server.patch({"template": {"resources": {"limits": {"memory": "2Gi"}}}})
    recovers(server)


def test_a_hung_engine_is_named_and_comes_back(make: Make) -> None:
    server = make("hung", limits={"stepTimeout": STOPPED_S})
    server.wait_for("Ready", timeout_s=240)
    name = server.only_pod()["metadata"]["name"]
    read = "import urllib.request as u; print(u.urlopen('http://127.0.0.1:8000/status').read().decode())"
    status = json.loads(server.kube.exec(server.namespace, name, "python3", "-c", read))
    server.kube.exec(server.namespace, name, "sh", "-c", f"kill -STOP {status['pids']['engine']}")
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(server.chat)
        found = server.wait_for("ModelReady", "False", "DeviceHung", timeout_s=180)
        with pytest.raises(KubectlError):
            asked.result()
    assert "device hung" in found["message"]
    recovers(server)


@pytest.mark.slow
def test_a_pod_that_outgrows_its_cache_is_evicted_and_that_is_named(make: Make) -> None:
    server = make("evicted", model={"cache": {"size": "20Mi"}})
    found = server.wait_for("ModelReady", "False", "Evicted", timeout_s=240)
    assert "spec.model.cache.size" in found["message"]
    server.patch({"model": {"cache": {"size": "1Gi"}}})
    recovers(server)
