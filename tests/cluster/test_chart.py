"""The chart's life: upgraded, rolled back, installed twice, uninstalled, installed again."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from testcluster import churn
from testcluster import release as chart
from testcluster.kube import Kube, Object
from testcluster.layout import Cluster
from testcluster.operators import Operators
from testcluster.servers import Server
from testcluster.shell import ClusterError

CRD = "inferenceservers.flatwake.dev"
OTHER = "other-system"


@pytest.fixture
def server(kube: Kube, release: str, namespace: str) -> Server:
    """One that wants no pods, converged."""
    kube.apply(churn.server("chat"), namespace=namespace)
    made = Server(kube, namespace, "chat")
    made.wait_for("Accepted")
    return made


@pytest.fixture
def newer_chart(tmp_path: Path) -> Path:
    """What the next version may be: its CRD knows one more field."""
    made = tmp_path / "flatwake"
    shutil.copytree(chart.CHART, made)
    described = made / "Chart.yaml"
    text = yaml.safe_load(described.read_text())
    described.write_text(yaml.safe_dump(text | {"version": "99.0.0"}))
    crd = made / "templates/crd-inferenceserver.yaml"
    lines = crd.read_text().splitlines(keepends=True)
    place = next(i for i, line in enumerate(lines) if line.strip() == "maxSequences:")
    indent = " " * (len(lines[place]) - len(lines[place].lstrip()))
    lines[place:place] = [f"{indent}newer:\n", f"{indent}  type: string\n"]
    crd.write_text("".join(lines))
    return made


def crd_knows_newer(kube: Kube) -> bool:
    found = kube.get("crd", CRD)
    assert found is not None
    (version,) = found["spec"]["versions"]
    spec = version["schema"]["openAPIV3Schema"]["properties"]["spec"]
    return "newer" in spec["properties"]["engine"]["properties"]


def test_an_upgrade_brings_the_new_crd_and_a_rollback_the_old_one(
    cluster: Cluster, kube: Kube, server: Server, images: dict[str, str], newer_chart: Path
) -> None:
    before = server.template_generation()
    chart.install(cluster, images, chart=newer_chart)
    try:
        assert crd_knows_newer(kube)
        server.patch({"engine": {"newer": "yes"}})
        told = server.wait_for("Accepted")
        assert "newer than this operator: spec.engine.newer" in told["message"]
    finally:
        chart.helm(cluster, "rollback", chart.NAME, "--wait", "--timeout=150s")
    assert "Succeeded" in chart.helm(cluster, "test", chart.NAME)
    assert not crd_knows_newer(kube)
    # Pruned when it is read already, and for good with the next write.
    assert "newer" not in server.read()["spec"].get("engine", {})
    server.patch({"limits": {"queue": 7}})
    assert server.wait_for("Accepted")["message"] == (
        "the spec is understood and its objects are in place"
    )
    assert server.template_generation() != before, "limits roll"


@pytest.fixture
def other(cluster: Cluster, kube: Kube) -> Iterator[str]:
    """The namespace of a second release; nothing of it stays."""
    yield OTHER
    try:
        chart.helm(cluster, "uninstall", "other", "-n", OTHER, "--ignore-not-found", "--wait")
    finally:
        kube.kubectl(
            "delete", "namespace", OTHER, "--ignore-not-found", "--timeout=90s", timeout_s=100
        )


def install_other(cluster: Cluster, images: dict[str, str], *more: str) -> str:
    values = [f"--set=images.{name}={reference}" for name, reference in images.items()]
    return chart.helm(
        cluster, "install", "other", str(chart.CHART), "-n", OTHER, "--create-namespace",
        "--wait", "--timeout=150s", "--set=operator.replicas=1", *values, *more,
    )  # fmt: skip


@pytest.mark.slow
def test_a_second_release_leaves_the_first_ones_crd_alone(
    cluster: Cluster, kube: Kube, server: Server, images: dict[str, str], other: str
) -> None:
    with pytest.raises(ClusterError, match=f"{CRD}.*cannot be imported"):
        install_other(cluster, images)
    chart.helm(cluster, "uninstall", "other", "-n", OTHER, "--ignore-not-found")
    notes = install_other(
        cluster, images, "--set=crds.install=false", f"--set=operator.watchNamespaces={{{OTHER}}}"
    )
    assert "The CRD isn't this release's" in notes
    chart.helm(cluster, "test", "other", "-n", OTHER)
    assert Operators(kube, OTHER, "other-flatwake-operator").leader()
    chart.helm(cluster, "uninstall", "other", "-n", OTHER, "--wait")
    assert kube.get("crd", CRD) is not None
    server.patch({"limits": {"queue": 5}})
    server.wait_for("Accepted")


@pytest.mark.slow
def test_an_uninstalled_chart_leaves_servers_to_whichever_release_comes_next(
    cluster: Cluster, kube: Kube, server: Server, images: dict[str, str], other: str
) -> None:
    before = children(kube, server)
    chart.uninstall(cluster)
    try:
        assert kube.get("crd", CRD) is not None
        assert children(kube, server) == before
        left = kube.kubectl("-n", chart.NAMESPACE, "get", "lease", "-o", "name").split()
        assert left == ["lease.coordination.k8s.io/flatwake-operator"], "as the notes say"

        with pytest.raises(ClusterError, match="cannot be imported"):
            install_other(cluster, images)
        chart.helm(cluster, "uninstall", "other", "-n", OTHER, "--ignore-not-found")
        install_other(cluster, images, "--take-ownership")
        server.patch({"access": {"from": [{"podSelector": {}}]}})
        kube.until(
            "the release of another name looks after the server",
            lambda: kube.get("networkpolicy", "chat", server.namespace),
            namespaces=[OTHER],
        )
        assert children(kube, server) == before
        chart.helm(cluster, "uninstall", "other", "-n", OTHER, "--wait")
    finally:
        chart.install(cluster, images, words=["--take-ownership"])
    server.wait_for("Accepted")
    assert children(kube, server) == before


def children(kube: Kube, server: Server) -> dict[str, Any]:
    """What its pods are made from: kind and name → spec."""
    kinds = "deployments,services,poddisruptionbudgets"
    found: list[Object] = kube.list(kinds, server.namespace, "flatwake.dev/server=chat")
    return {
        f"{each['kind']}/{each['metadata']['name']}": json.dumps(each["spec"]) for each in found
    }
