"""One manifest, from `kubectl apply` to an answer and to nothing left."""

from __future__ import annotations

from testcluster.hub import Hub
from testcluster.kube import Kube
from testcluster.servers import Server, example

STAGES = ["Starting", "Fetching", "Loading", "Warming", "Serving"]
COLUMNS = ["NAME", "READY", "MODEL", "PERCENT", "ACCELERATOR", "ENDPOINT", "REASON", "AGE"]


def test_one_manifest_serves_through_its_service_and_leaves_nothing(
    kube: Kube, release: str, hub: Hub, namespace: str
) -> None:
    server = Server(kube, namespace, "smollm2")
    before = kube.everything()
    kube.apply(example("smollm2.yaml", hub), namespace=namespace)

    stages = stages_until_ready(server)
    print(stages)
    if stages[-2:-1] == ["Starting"]:
        del stages[-2]  # the Deployment counts its pods a moment after they are ready
    assert stages[-1] == "Serving"
    assert stages == sorted(stages, key=STAGES.index), "each stage comes once, in order"
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


def stages_until_ready(server: Server) -> list[str]:
    """What `kubectl get` says in REASON while the server starts, each once."""
    seen: list[str] = []

    def look() -> bool:
        row = server.row()
        if row["REASON"] not in ("", *seen[-1:]):
            seen.append(row["REASON"])
        return row["READY"] == "True"

    server.kube.until("it serves", look, namespaces=[server.namespace], timeout_s=180)
    return seen
