"""Volumes that can be full: a tmpfs of the node, as a PersistentVolume for one claim."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from testcluster import lifecycle
from testcluster.kube import Kube, Object
from testcluster.layout import NODE
from testcluster.shell import run


@dataclass(frozen=True)
class Volume:
    """A file system of the node."""

    kube: Kube
    path: Path

    def mount(self, options: str) -> None:
        self._run("mount", "-t", "tmpfs", "-o", options, "tmpfs", self.path)

    def grow(self, size: str) -> None:
        """Give it another size, with all that is in it."""
        self._run("mount", "-o", f"remount,size={size}", self.path)

    def unmount(self) -> None:
        self._run("umount", "--lazy", self.path)

    def _run(self, *words: str | Path) -> None:
        first = lifecycle.process_one(self.kube.cluster.require_running())
        assert first is not None, "a whole cluster has a process 1"
        # With its process numbers, or /proc/self, where mount looks, isn't there.
        run("nsenter", "--target", str(first), "--mount", "--pid", *words)


@contextmanager
def small(kube: Kube, namespace: str, claim: str, size: str) -> Iterator[Volume]:
    """A volume of that size for a claim that asks for up to 1Gi."""
    name = f"{namespace}-{claim}"
    volume = Volume(kube, kube.cluster.run / "volumes" / name)
    volume.path.mkdir(parents=True)
    volume.mount(f"size={size}")
    kube.apply(_object(name, volume.path, namespace, claim))
    try:
        yield volume
    finally:
        kube.kubectl("delete", "pv", name, "--wait=false")
        volume.unmount()
        volume.path.rmdir()


def _object(name: str, path: Path, namespace: str, claim: str) -> Object:
    here = {"key": "kubernetes.io/hostname", "operator": "In", "values": [NODE]}
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": name},
        "spec": {
            "capacity": {"storage": "1Gi"},
            "accessModes": ["ReadWriteOnce"],
            "persistentVolumeReclaimPolicy": "Retain",
            "claimRef": {"namespace": namespace, "name": claim},
            "local": {"path": str(path)},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [here]}]}},
        },
    }
