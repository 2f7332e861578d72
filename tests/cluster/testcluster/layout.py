"""Where everything is, and the addresses inside a cluster."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

from testcluster.shell import ClusterError, process_start

SOURCES = Path(__file__).resolve().parent.parent
REPOSITORY = SOURCES.parent.parent

# The same in every cluster: each has a network namespace of its own. CLUSTER_FAMILY=ipv6 makes
# clusters whose nodes, pods and Services have no other addresses.
NODE = "node1"
IPV6 = os.environ.get("CLUSTER_FAMILY", "ipv4") == "ipv6"
NODE_IP, NODE_NETWORK, POD_CIDR, NODE_POD_CIDR, SERVICE_CIDR, API_SERVICE_IP, DNS_SERVICE_IP = (
    ("fd00:89::1", "fd00:89::1/64", "fd00:244::/56", "fd00:244::/64",
     "fd00:96::/112", "fd00:96::1", "fd00:96::a")
    if IPV6 else
    ("10.89.0.1", "10.89.0.1/24", "10.244.0.0/16", "10.244.0.0/24",
     "10.96.0.0/16", "10.96.0.1", "10.96.0.10")
)  # fmt: skip
ANY_ADDRESS, DEFAULT_ROUTE, FAMILY = (
    ("::", "::/0", "IPv6") if IPV6 else ("0.0.0.0", "0.0.0.0/0", "IPv4")
)

PAUSE = "localhost/pause:1"
BUSYBOX = "localhost/busybox:1"


def in_url(address: str) -> str:
    """An address as URLs write it."""
    return f"[{address}]" if ":" in address else address


def work_folder() -> Path:
    """$CLUSTER_DIR, else a folder in the user's cache."""
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return Path(os.environ.get("CLUSTER_DIR") or f"{cache}/flatwake/cluster").absolute()


def binaries() -> Path:
    return work_folder() / "bin"


def archives() -> Path:
    """OCI archives, ready to be loaded."""
    return work_folder() / "images"


@dataclass(frozen=True)
class Cluster:
    """The folder and the names that belong to one cluster, whether or not it runs."""

    name: str

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[a-z0-9]{1,8}", self.name):
            raise ClusterError(f"bad name {self.name!r}: 1 to 8 of a-z and 0-9")
        # 107 bytes are all that a Unix socket's address holds.
        if len(str(self.run / "kubelet/device-plugins/kubelet.sock")) > 100:
            raise ClusterError(
                f"the work folder's path {work_folder()} is too long: set CLUSTER_DIR"
            )

    @property
    def run(self) -> Path:
        return work_folder() / "run" / self.name

    @property
    def cgroup(self) -> str:
        return f"flatwake-{self.name}"

    @property
    def containerd_socket(self) -> Path:
        return self.run / "containerd.sock"

    @property
    def kubeconfig(self) -> Path:
        return self.run / "admin.kubeconfig"

    @property
    def pki(self) -> Path:
        return self.run / "pki"

    @property
    def device_plugins(self) -> Path:
        """The kubelet's folder of device plugin sockets, as seen from outside."""
        return self.run / "kubelet/device-plugins"

    @property
    def api_only(self) -> bool:
        return (self.run / "ports.json").exists()

    def holder(self) -> int | None:
        """The process whose end ends the cluster, or None when there is none."""
        try:
            pid, start = (self.run / "holder").read_text().split()
        except (OSError, ValueError):
            return None
        return int(pid) if process_start(int(pid)) == start else None

    def require_running(self) -> int:
        holder = self.holder()
        if holder is None:
            raise ClusterError(f"{self.name} is not up: `cluster up {self.name}` starts it")
        return holder


def existing() -> list[Cluster]:
    """Every cluster that has a folder, running or left over."""
    folder = work_folder() / "run"
    return [Cluster(path.name) for path in sorted(folder.iterdir())] if folder.is_dir() else []
