"""The chart, installed in a cluster with the images of these sources."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path

from testcluster import images, layout, lifecycle
from testcluster.layout import Cluster
from testcluster.shell import ClusterError

NAMESPACE = "flatwake-system"
NAME = "flatwake"
CHART = layout.REPOSITORY / "charts/flatwake"
IMAGES = (images.OPERATOR, images.CPU)


def load_images(cluster: Cluster) -> dict[str, str]:
    """Build what changed and load it into the node: name → reference."""
    lifecycle.load(cluster, [images.build(image) for image in IMAGES])
    return {image.name: image.reference() for image in IMAGES}


def helm(cluster: Cluster, *words: str, timeout_s: float = 180) -> str:
    """What helm prints; a ClusterError has what it said instead."""
    command = [str(layout.binaries() / "helm"), "-n", NAMESPACE, *words]
    done = subprocess.run(
        lifecycle.inside(cluster, command), env=lifecycle.environment(cluster),
        capture_output=True, text=True, timeout=timeout_s, check=False,
    )  # fmt: skip
    if done.returncode:
        raise ClusterError(f"helm {words[0]}: {done.stderr.strip() or done.stdout.strip()}")
    return done.stdout


def install(
    cluster: Cluster,
    references: dict[str, str],
    *values: str,
    words: Sequence[str] = (),
    chart: Path = CHART,
) -> str:
    """Install or upgrade and wait for the operator.

    values: further ones as `name=value`. words: further ones for helm.
    """
    chosen = [f"images.{name}={reference}" for name, reference in references.items()]
    return helm(
        cluster, "upgrade", "--install", NAME, str(chart), "--create-namespace",
        "--wait", "--timeout=150s", *(f"--set={value}" for value in (*chosen, *values)), *words,
    )  # fmt: skip


def uninstall(cluster: Cluster) -> None:
    helm(cluster, "uninstall", NAME, "--wait", "--timeout=90s")
