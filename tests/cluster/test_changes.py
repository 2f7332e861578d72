"""What a change of a running server does to its pods, and what it leaves alone."""

from __future__ import annotations

import functools
from collections.abc import Iterator

import pytest
from testcluster import hub as model_hub
from testcluster import release as chart
from testcluster.hub import Hub
from testcluster.kube import Kube, Object
from testcluster.layout import Cluster
from testcluster.servers import Server, example, serving


@pytest.fixture(scope="module")
def server(kube: Kube, release: str, hub: Hub, module_namespace: str) -> Server:
    """One replica that serves, for all tests of this module."""
    return serving(kube, hub, module_namespace, max_sequences=4)


@pytest.fixture
def one_replica(server: Server) -> Iterator[set[str]]:
    """The uid of the only pod; what a test scales up comes down after it."""
    yield server.wait_for_pods("one pod", lambda ready: len(ready) == 1)
    server.kube.kubectl("-n", server.namespace, "scale", "infs", server.name, "--replicas=1")


def test_scaling_adds_a_pod_and_rolls_nothing(server: Server, one_replica: set[str]) -> None:
    server.kube.kubectl("-n", server.namespace, "scale", "infs", server.name, "--replicas=2")
    ready = server.wait_for_pods("two pods", lambda ready: len(ready) == 2)
    assert one_replica < ready
    server.kube.until(
        "the status counts both", lambda: server.read()["status"]["readyReplicas"] == 2 or None
    )


def test_a_hand_edit_of_a_child_is_put_back(server: Server, one_replica: set[str]) -> None:
    edit = '{"spec": {"selector": {"flatwake.dev/server": "nobody"}}}'
    words = ["patch", "service", server.name, "--type=merge", "-p", edit]
    server.kube.kubectl("-n", server.namespace, *words)

    def selector() -> dict[str, str]:
        found = server.kube.get("service", server.name, server.namespace)
        assert found is not None, "the server has a Service"
        return dict(found["spec"]["selector"])

    server.kube.until(
        "the Service selects its pods again",
        lambda: selector() == {"flatwake.dev/server": server.name} or None,
        namespaces=[server.namespace], timeout_s=90,
    )  # fmt: skip
    assert server.ready_pods() == one_replica


def test_an_operator_upgrade_rolls_nothing_and_neither_does_the_scale_after_it(
    cluster: Cluster, images: dict[str, str], server: Server, one_replica: set[str]
) -> None:
    before = server.template_generation()
    chart.install(cluster, images | {"cpu": "localhost/flatwake-cpu:newer"})
    try:
        server.kube.kubectl("-n", server.namespace, "scale", "infs", server.name, "--replicas=2")
        ready = server.wait_for_pods("two pods", lambda ready: len(ready) == 2)
    finally:
        chart.install(cluster, images)
    assert one_replica < ready
    assert server.template_generation() == before


@pytest.mark.parametrize(
    "what",
    [
        "engine",
        pytest.param("limits", marks=pytest.mark.slow),
        pytest.param("model", marks=pytest.mark.slow),
    ],
)
def test_what_pods_are_started_with_rolls_every_pod(
    server: Server, one_replica: set[str], hub: Hub, what: str
) -> None:
    hub.files["same.gguf"] = hub.files[model_hub.FILE]
    changes = {
        "engine": {"maxSequences": 2},
        "limits": {"queue": 9},
        "model": {"source": hub.url("same.gguf")},
    }
    server.patch({what: changes[what]})
    rolled = server.wait_for_pods("other pods", lambda ready: ready.isdisjoint(one_replica))
    assert len(rolled) == 1
    assert server.wait_for("Ready")["reason"] == "Serving"


def test_what_pods_know_nothing_of_rolls_nothing(server: Server, one_replica: set[str]) -> None:
    before = server.template_generation()
    changes = {
        "access": {"from": [{"podSelector": {}}]},
        "endpoint": {"annotations": {"example.com/note": "new"}},
        "rollout": {"strategy": "Replace"},
    }
    server.patch(changes)
    for thing, look in (("Service", with_note), ("strategy", replacing), ("NetworkPolicy", policy)):
        server.kube.until(
            f"the {thing} follows", functools.partial(look, server), namespaces=[server.namespace]
        )
    server.patch(dict.fromkeys(changes))
    server.kube.until("the NetworkPolicy is gone", lambda: not policy(server))
    assert server.template_generation() == before
    assert server.ready_pods() == one_replica


def with_note(server: Server) -> Object | None:
    found = server.kube.get("service", server.name, server.namespace)
    return found if found and "example.com/note" in found["metadata"]["annotations"] else None


def policy(server: Server) -> Object | None:
    return server.kube.get("networkpolicy", server.name, server.namespace)


def replacing(server: Server) -> Object | None:
    found = server.kube.get("deployment", server.name, server.namespace)
    surge = found and found["spec"]["strategy"]["rollingUpdate"]["maxSurge"]
    return found if surge == 0 else None


def test_a_chat_template_is_taken_up_by_other_pods(server: Server, one_replica: set[str]) -> None:
    plain = server.chat()["usage"]["prompt_tokens"]
    apply_template(server, "{{ messages[-1].content }}")
    server.patch({"model": {"chatTemplate": {"name": "templates", "key": "chat"}}})
    server.wait_for_pods("other pods", lambda ready: ready.isdisjoint(one_replica))
    server.wait_for("Ready")
    assert server.chat()["usage"]["prompt_tokens"] < plain


@pytest.mark.slow
def test_an_edited_chat_template_is_taken_up_by_other_pods(
    server: Server, one_replica: set[str]
) -> None:
    """ConfigMaps aren't watched: the operator reads it with each resync, once a minute."""
    apply_template(server, "{{ messages[-1].content }}")
    server.patch({"model": {"chatTemplate": {"name": "templates", "key": "chat"}}})
    before = server.wait_for_pods("one pod", lambda ready: len(ready) == 1)
    apply_template(server, "{{ messages[-1].content }} and so on and on and on")
    server.wait_for_pods("other pods", lambda ready: ready.isdisjoint(before))


def apply_template(server: Server, text: str) -> None:
    template = {"metadata": {"name": "templates"}, "data": {"chat": text}}
    server.kube.apply(
        {"apiVersion": "v1", "kind": "ConfigMap", **template}, namespace=server.namespace
    )


def test_rollout_restart_works(server: Server, one_replica: set[str]) -> None:
    words = ["rollout", "restart", f"deployment/{server.name}"]
    server.kube.kubectl("-n", server.namespace, *words)
    rolled = server.wait_for_pods("other pods", lambda ready: ready.isdisjoint(one_replica))
    assert len(rolled) == 1


def test_a_foreign_object_of_a_childs_name_is_left_alone(
    kube: Kube, release: str, hub: Hub, namespace: str
) -> None:
    foreign = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "smollm2", "labels": {"whose": "mine"}},
        "spec": {"selector": {"mine": "yes"}, "ports": [{"port": 8000}]},
    }
    kube.apply(foreign, namespace=namespace)
    kube.apply(example("smollm2.yaml", hub), namespace=namespace)
    server = Server(kube, namespace, "smollm2")
    refused = server.wait_for("Accepted", "False", "NameTaken")
    assert "smollm2" in refused["message"]
    found = kube.get("service", "smollm2", namespace)
    assert found is not None
    assert found["spec"]["selector"] == {"mine": "yes"}
    assert found["metadata"]["labels"] == {"whose": "mine"}

    kube.kubectl("-n", namespace, "delete", "service", "smollm2")
    server.wait_for("Accepted", timeout_s=90)
