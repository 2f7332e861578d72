"""The only node is drained, and comes back; a budget that holds, and one that doesn't."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from testcluster.hub import Hub
from testcluster.kube import Kube, KubectlError
from testcluster.layout import NODE
from testcluster.operators import Operators
from testcluster.servers import Server, serving


@pytest.fixture(scope="module")
def server(kube: Kube, release: str, hub: Hub, module_namespace: str) -> Server:
    """One replica that serves."""
    return serving(kube, hub, module_namespace, max_sequences=2)


@pytest.fixture
def whole_node(kube: Kube) -> Iterator[None]:
    yield
    kube.kubectl("uncordon", NODE)


def evict(server: Server, pod: str) -> str | None:
    """Ask for a pod's eviction, as `kubectl drain` does; what refuses it, or None."""
    body = (
        f'{{"apiVersion": "policy/v1", "kind": "Eviction",'
        f' "metadata": {{"name": "{pod}", "namespace": "{server.namespace}"}}}}'
    )
    path = f"/api/v1/namespaces/{server.namespace}/pods/{pod}/eviction"
    try:
        server.kube.kubectl("create", "--raw", path, "-f", "-", text=body)
    except KubectlError as error:
        return str(error)
    return None


def test_a_drain_of_the_only_node_ends_and_the_server_comes_back(
    kube: Kube, release: str, server: Server, whole_node: None
) -> None:
    old = server.wait_for_pods("one pod", lambda ready: len(ready) == 1)
    # --force is for the test's own pod, which nothing would make anew; it stays.
    kube.kubectl(
        "drain", NODE, "--delete-emptydir-data", "--force", "--pod-selector=run!=client",
        "--timeout=120s", timeout_s=130,
    )  # fmt: skip
    pods = server.pods()
    assert [pod["status"]["phase"] for pod in pods] == ["Pending"]
    kube.kubectl("uncordon", NODE)
    server.wait_for_pods("another pod", lambda ready: len(ready) == 1 and ready.isdisjoint(old))
    kube.until(
        "the operator is back too",
        lambda: len(Operators(kube, release).pods()) == 2,
        namespaces=[release],
    )
    assert server.wait_for("Ready", timeout_s=120)["reason"] == "Serving"
    assert server.chat()["choices"][0]["message"]["content"].strip()


@pytest.mark.slow
def test_one_pod_of_two_may_be_evicted_at_a_time_and_a_broken_one_always(
    kube: Kube, server: Server, whole_node: None
) -> None:
    kube.kubectl("-n", server.namespace, "scale", "infs", server.name, "--replicas=2")
    server.wait_for_pods("two pods", lambda ready: len(ready) == 2)
    first, second = (pod["metadata"]["name"] for pod in server.pods())
    kube.until(
        "the budget allows one",
        lambda: kube.get("pdb", server.name, server.namespace)["status"]["disruptionsAllowed"] == 1,  # type: ignore[index]
    )
    kube.kubectl("cordon", NODE)  # so that no other pod takes the first one's place
    assert evict(server, first) is None
    refused = evict(server, second)
    assert refused is not None
    assert "disruption budget" in refused

    # The pod that waits for a node isn't ready: it is in nobody's way.
    waiting = kube.until(
        "the pod's successor waits",
        lambda: next(
            (p["metadata"]["name"] for p in server.pods() if p["metadata"]["name"] != second), None
        ),
        namespaces=[server.namespace],
    )
    assert evict(server, waiting) is None
    kube.kubectl("uncordon", NODE)
    kube.kubectl("-n", server.namespace, "scale", "infs", server.name, "--replicas=1")
    server.wait_for_pods("one pod", lambda ready: len(ready) == 1)
