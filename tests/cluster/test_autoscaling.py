"""An autoscaler's pods: on our own metric, on CPU, coming and going."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from testcluster import metrics, users
from testcluster.hub import Hub
from testcluster.kube import Kube
from testcluster.layout import Cluster
from testcluster.metrics import Metrics
from testcluster.servers import Server, example

SLOTS = 2
REQUEST_MILLI = 100


@pytest.fixture(scope="module")
def metrics_api(kube: Kube, release: str) -> Iterator[Metrics]:
    with metrics.served(kube) as served:
        yield served


@pytest.fixture(scope="module")
def server(kube: Kube, metrics_api: Metrics, hub: Hub, module_namespace: str) -> Server:
    """One replica, without an autoscaler."""
    manifest = example(
        "smollm2.yaml",
        hub,
        engine={"contextLength": 512, "maxSequences": SLOTS},
        accelerator={"backend": "Cpu"},
        template={"resources": {"requests": {"cpu": f"{REQUEST_MILLI}m"}}},
    )
    kube.apply(manifest, namespace=module_namespace)
    made = Server(kube, module_namespace, "smollm2")
    made.wait_for("Ready", timeout_s=240)
    return made


@pytest.fixture
def one(server: Server, metrics_api: Metrics) -> Iterator[set[str]]:
    """The uid of the only pod; afterwards the autoscaler is off again."""
    yield server.wait_for_pods("one pod", lambda ready: len(ready) == 1)
    metrics_api.cpu_milli = 1
    server.patch({"autoscaling": None, "replicas": 1})


def wanted(server: Server) -> int:
    """The replicas that the Deployment asks for."""
    found = server.kube.get("deployment", server.name, server.namespace)
    assert found is not None, "the server has a Deployment"
    return int(found["spec"]["replicas"])


def test_requests_in_flight_bring_a_second_pod_and_roll_nothing(
    cluster: Cluster, server: Server, one: set[str]
) -> None:
    before = server.template_generation()
    with users.streaming(cluster, server.inside_url(), count=4, tokens=100):
        server.patch({"autoscaling": {"maxReplicas": 2, "metric": "Queue"}})
        server.kube.until(
            "the autoscaler asks for two",
            lambda: wanted(server) == 2 or None,
            namespaces=[server.namespace],
            timeout_s=90,
        )
    both = server.wait_for_pods("two pods", lambda ready: len(ready) == 2)
    assert one < both
    assert server.read()["spec"]["replicas"] == 1, "the autoscaler's number is the Deployment's"

    # A change that rolls nothing is followed, and the operator writes no replicas meanwhile.
    server.patch({"access": {"from": [{"podSelector": {}}]}})
    server.kube.until(
        "the change is taken up",
        lambda: server.kube.get("networkpolicy", server.name, server.namespace),
    )
    assert wanted(server) == 2

    server.patch({"autoscaling": None, "access": {"from": None}})
    left = server.wait_for_pods("spec.replicas again", lambda ready: len(ready) == 1)
    assert left < both
    assert server.template_generation() == before


def test_cpu_brings_a_second_pod(server: Server, one: set[str], metrics_api: Metrics) -> None:
    metrics_api.cpu_milli = 2 * REQUEST_MILLI
    server.patch({"autoscaling": {"maxReplicas": 2, "metric": "Cpu"}})
    both = server.wait_for_pods("two pods", lambda ready: len(ready) == 2)
    assert one < both


@pytest.mark.slow
def test_an_autoscaler_keeps_the_live_count(server: Server, one: set[str]) -> None:
    server.kube.kubectl("-n", server.namespace, "scale", "infs", server.name, "--replicas=2")
    both = server.wait_for_pods("two pods", lambda ready: len(ready) == 2)
    server.patch({"autoscaling": {"minReplicas": 1, "maxReplicas": 3}})
    server.kube.until(
        "there is an autoscaler",
        lambda: server.kube.get("hpa", server.name, server.namespace),
        namespaces=[server.namespace],
    )
    server.wait_for("Progressing", "False", "UpToDate")
    assert wanted(server) == 2
    assert server.ready_pods() == both
