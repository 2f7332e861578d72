"""The load suite from inside the cluster: its image, as the chart's Job and as `helm test`."""

from __future__ import annotations

import pytest
from testcluster import images as project_images
from testcluster import lifecycle
from testcluster import release as chart
from testcluster.hub import Hub
from testcluster.kube import Kube
from testcluster.servers import Server, example

JOB = "flatwake-load-check"


@pytest.mark.timeout(1800)
def test_helm_test_puts_a_server_under_short_load(
    kube: Kube, release: str, images: dict[str, str], hub: Hub, namespace: str
) -> None:
    lifecycle.load(kube.cluster, [project_images.build(project_images.LOAD)])
    kube.apply(example("smollm2.yaml", hub), namespace=namespace)
    Server(kube, namespace, "smollm2").wait_for("Ready", timeout_s=300)
    references = {**images, "load": project_images.LOAD.reference()}
    chart.install(kube.cluster, references, f"load.target=http://smollm2.{namespace}:8000")
    try:
        chart.helm(kube.cluster, "test", chart.NAME, "--timeout=900s", timeout_s=930)
    finally:
        log = kube.kubectl("-n", release, "logs", f"job/{JOB}", "--tail=-1")
        print(log)
        chart.install(kube.cluster, images)
        kube.kubectl("-n", release, "delete", "job", JOB, "--ignore-not-found")
    assert "Every promise holds." in log
    for wave in ("1 user", "8 users", "burst beyond the queue", "endurance"):
        assert wave in log
