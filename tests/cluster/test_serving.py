"""One manifest, from `kubectl apply` to an answer and to nothing left."""

from __future__ import annotations

from testcluster.hub import Hub
from testcluster.kube import Kube
from testcluster.servers import Server, example

COLUMNS = ["NAME", "READY", "MODEL", "PERCENT", "ACCELERATOR", "ENDPOINT", "REASON", "AGE"]


def test_one_manifest_serves_through_its_service_and_leaves_nothing(
    kube: Kube, release: str, hub: Hub, namespace: str
) -> None:
    server = Server(kube, namespace, "smollm2")
    before = kube.everything()
    kube.apply(example("smollm2.yaml", hub), namespace=namespace)

    ready = server.wait_for("Ready", timeout_s=180)
    assert ready["reason"] == "Serving"
    answer = server.chat()
    assert answer["object"] == "chat.completion"
    assert answer["model"] == "smollm2"
    assert answer["choices"][0]["message"]["content"].strip()
    assert answer["usage"]["completion_tokens"] <= 8

    row = server.row()
    assert list(row) == COLUMNS
    assert row["READY"] == "True"
    assert row["PERCENT"] == "100"
    assert row["ACCELERATOR"] == "Cpu"
    assert row["REASON"] == "Serving"
    described = kube.kubectl("-n", namespace, "describe", "infs", "smollm2")
    assert "smollm2" in row["ENDPOINT"]
    for kind in ("Accepted", "ModelReady", "AcceleratorReady", "Progressing", "Ready"):
        assert kind in described

    kube.kubectl("-n", namespace, "delete", "infs", "smollm2", "--timeout=60s")
    kube.until(
        "the delete leaves what was there before",
        lambda: kube.everything() <= before or None,
        namespaces=[namespace],
        timeout_s=90,
    )
