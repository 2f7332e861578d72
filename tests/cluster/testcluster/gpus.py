"""A device plugin of the test's own for amd.com/gpu, whose devices can turn unhealthy.

What a pod gets as /dev/kfd and /dev/dri/renderD128 are null devices, with the owner and mode that
a real machine's have: whoever opens them needs the render group, and nothing answers behind them.
"""

from __future__ import annotations

import os
import stat
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from testcluster import binaries, lifecycle
from testcluster.kube import Kube
from testcluster.layout import NODE

RESOURCE = "amd.com/gpu"
RENDER_GROUP = 104
NULL_DEVICE = os.makedev(1, 3)
IN_POD = {"kfd": "/dev/kfd", "renderD128": "/dev/dri/renderD128"}


@dataclass
class Gpus:
    """The pretended devices gpu-0, gpu-1, …"""

    kube: Kube
    count: int
    unhealthy_file: Path

    def set_unhealthy(self, *indexes: int) -> None:
        """Which devices are unhealthy from now on; the kubelet shows it within two seconds."""
        self.unhealthy_file.write_text("".join(f"gpu-{index}\n" for index in indexes))

    def seen(self) -> tuple[int, int]:
        """(capacity, allocatable) of the node."""
        node = self.kube.get("node", NODE)
        assert node is not None, "the cluster has one node"
        status = node["status"]
        return tuple(int(status[key].get(RESOURCE, 0)) for key in ("capacity", "allocatable"))  # type: ignore[return-value]

    def wait_for(self, capacity: int, allocatable: int) -> None:
        self.kube.until(
            f"the node shows {capacity} GPUs, {allocatable} of them healthy",
            lambda: self.seen() == (capacity, allocatable) or None,
            timeout_s=30,
        )


@contextmanager
def plugged_in(kube: Kube, count: int, *, group: int = RENDER_GROUP) -> Iterator[Gpus]:
    """Devices for the length of a block; afterwards the node has none that can be had."""
    folder = kube.cluster.run / "gpus"
    folder.mkdir(exist_ok=True)
    mapping = ",".join(f"{_node(folder, name, group)}:{path}" for name, path in IN_POD.items())
    gpus = Gpus(kube, count, folder / "unhealthy")
    gpus.set_unhealthy()
    command = [str(binaries.require("gpuplugin")), "-dir", str(kube.cluster.device_plugins),
               "-count", str(count), "-devices", mapping, "-resource", RESOURCE,
               "-unhealthy", str(gpus.unhealthy_file)]  # fmt: skip
    with (folder / "plugin.log").open("ab") as log:
        plugin = subprocess.Popen(
            lifecycle.inside(kube.cluster, command), stdout=log, stderr=log,
            env=lifecycle.environment(kube.cluster),
        )  # fmt: skip
    try:
        gpus.wait_for(count, count)
        yield gpus
    finally:
        plugin.terminate()
        plugin.wait(10)


def _node(folder: Path, name: str, group: int) -> Path:
    path = folder / name
    path.unlink(missing_ok=True)
    os.mknod(path, stat.S_IFCHR | 0o660, NULL_DEVICE)
    path.chmod(0o660)
    os.chown(path, 0, group)
    return path
