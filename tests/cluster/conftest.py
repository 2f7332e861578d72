"""One cluster for the whole suite, and what every test needs in it."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from testcluster import hub as model_hub
from testcluster import layout, session
from testcluster import release as chart
from testcluster.hub import Hub
from testcluster.kube import Kube
from testcluster.layout import Cluster
from testcluster.shell import ClusterError

PLUG_DEVICES = ("test_cluster", "test_devices")

# Every pod that a test starts, is reached from here: a busybox that waits to be told what to do.
CLIENT = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "client", "labels": {"run": "client"}},
    "spec": {
        "terminationGracePeriodSeconds": 0,
        "automountServiceAccountToken": False,
        "containers": [
            {"name": "c", "image": layout.BUSYBOX, "command": ["sleep", "1000000"]},
        ],
    },
}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What asks for the cluster is marked so; the tool's own tests run anywhere."""
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents and "cluster" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.cluster)
            # The first one pays for the cluster's start and, where they changed, for the images.
            if item.get_closest_marker("timeout") is None:
                item.add_marker(pytest.mark.timeout(1800))
    # A node that has once offered amd.com/gpu goes on naming it, and backend Auto sees that.
    items.sort(key=lambda item: item.path.stem in PLUG_DEVICES)


@pytest.fixture(scope="session")
def binaries() -> None:
    """What is compiled for the test cluster is there."""
    session.require(session.missing_for_api())


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    """A whole cluster of this test run's own; CLUSTER_USE names a running one instead."""
    session.require(session.missing_for_cluster())
    if name := os.environ.get("CLUSTER_USE"):
        yield Cluster(name)
        return
    with session.temporary("t") as started:
        yield started


@pytest.fixture(scope="session")
def kube(cluster: Cluster) -> Kube:
    return Kube(cluster)


@pytest.fixture(scope="session")
def hub(cluster: Cluster) -> Iterator[Hub]:
    """A model hub at the node's address that serves SmolLM2."""
    with model_hub.serving(cluster, {model_hub.FILE: model_hub.smollm2()}) as running:
        yield running


@contextmanager
def temporary_namespace(kube: Kube, name: str) -> Iterator[str]:
    """A namespace with a pod `client` in it, for the length of a block."""
    kube.kubectl("create", "namespace", name)
    try:
        # Pods are refused until the namespace has its account.
        kube.until(
            f"the default account of {name} exists",
            lambda: kube.get("serviceaccount", "default", name),
            timeout_s=30,
        )
        kube.apply(CLIENT, namespace=name)
        yield name
    finally:
        remove_namespace(kube, name)


def remove_namespace(kube: Kube, name: str) -> None:
    """Servers first: the namespace controller comes back to a namespace whose pods have a long
    grace period only after half of it, however soon they end."""
    if kube.get("crd", "inferenceservers.flatwake.dev"):
        kube.kubectl("-n", name, "delete", "infs", "--all", "--timeout=60s", timeout_s=70)
    kube.until(
        f"no server's pod is left in {name}",
        lambda: not kube.list("pods", name, "flatwake.dev/server") or None,
        namespaces=[name],
        timeout_s=90,
    )
    kube.kubectl("delete", "namespace", name, "--timeout=90s", timeout_s=100)


@pytest.fixture
def namespace(kube: Kube, request: pytest.FixtureRequest) -> Iterator[str]:
    """A namespace of the test's own."""
    words = re.sub(r"[^a-z0-9]+", "-", request.node.name.removeprefix("test_").lower())
    with temporary_namespace(kube, words[:60].strip("-")) as name:
        yield name


@pytest.fixture(scope="module")
def module_namespace(kube: Kube, request: pytest.FixtureRequest) -> Iterator[str]:
    """One for the tests of a module that don't get into each other's way."""
    name = request.node.path.stem.removeprefix("test_").replace("_", "-")
    with temporary_namespace(kube, f"module-{name}") as made:
        yield made


@pytest.fixture(scope="session")
def images(cluster: Cluster) -> dict[str, str]:
    """The project's images, built from these sources and loaded into the node: name → reference."""
    return chart.load_images(cluster)


@pytest.fixture(scope="session")
def release(cluster: Cluster, kube: Kube, images: dict[str, str]) -> Iterator[str]:
    """The chart, installed with the images built here; the name of its namespace."""
    try:
        chart.install(cluster, images)
    except ClusterError as error:
        raise AssertionError(f"{error}\n{kube.explain(chart.NAMESPACE)}") from None
    yield chart.NAMESPACE
    chart.uninstall(cluster)
