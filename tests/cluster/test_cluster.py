"""What every other test here takes for granted."""

from __future__ import annotations

import subprocess
from pathlib import Path

from testcluster import layout, lifecycle
from testcluster.hub import Hub
from testcluster.kube import Kube
from testcluster.layout import Cluster


def test_the_cluster_is_a_real_one(cluster: Cluster) -> None:
    """34 checks from the node's readiness over CEL and helm to a delete that leaves nothing."""
    done = subprocess.run(
        lifecycle.inside(cluster, [str(layout.SOURCES / "check")]),
        env=lifecycle.environment(cluster), capture_output=True, text=True, timeout=240,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"


def test_a_pod_reaches_the_hub_and_resumes(
    kube: Kube, hub: Hub, namespace: str, tmp_path: Path
) -> None:
    (tmp_path / "words").write_text("one two three")
    hub.files["words"] = tmp_path / "words"
    resume = f"cd /tmp && printf 'one ' > words && wget -q -c {hub.url('words')} && cat words"
    found = kube.until(
        "the client pod resumes a download",
        lambda: kube.exec(namespace, "client", "sh", "-c", resume),
        namespaces=[namespace],
    )
    assert found == "one two three"
    assert "GET /words bytes=4-" in hub.requests
