"""Mounts, network and cgroups of one cluster.

Everything runs inside namespaces of its own, so that nothing has to be cleaned up by hand:

network  Every cluster uses the same addresses and ports, and no packet can leave it. It has no
         name in /run/netns, so nothing stays when its last process ends.
mount    kubelet, containerd and the CNI plugins have folders that can't be configured
         (/var/lib/kubelet/device-plugins, /var/lib/cni, /run/containerd/s, /run/netns,
         /run/xtables.lock). A private mount namespace gives each cluster its own, and the kernel
         undoes every overlay and tmpfs mount when the last process in it has gone.
pid      The supervisor is process 1 of a pid namespace. Killing that one process by its number
         ends every component, shim and container; nothing is ever killed by name.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

from testcluster.layout import IPV6, NODE_NETWORK, Cluster
from testcluster.shell import run, say, write

# unshare and not "ip netns exec": the latter mounts a fresh /sys, in which the cgroup hierarchies
# are missing, and then neither runc nor the kubelet starts.
UNSHARE = ("unshare", "--net", "--mount", "--pid", "--fork", "--mount-proc", "--kill-child",
           "--propagation", "slave")  # fmt: skip

# The cluster's folder → where the components insist on having it.
PRIVATE = {
    "kubelet": "/var/lib/kubelet",
    "containerd": "/var/lib/containerd",
    "cni": "/var/lib/cni",
    "podlogs": "/var/log/pods",
    "containerlogs": "/var/log/containers",
}
# The kubelet sets these for the whole machine. It gets files to write to.
MACHINE_SETTINGS = ("vm/overcommit_memory", "vm/panic_on_oom", "kernel/panic",
                    "kernel/panic_on_oops", "kernel/keys/root_maxkeys",
                    "kernel/keys/root_maxbytes")  # fmt: skip


def prepare_mounts(cluster: Cluster) -> None:
    """Called by process 1, inside."""
    # Shared within the namespace, or a pod's mountPropagation is refused; what is mounted here
    # still doesn't reach the machine.
    run("mount", "--make-rshared", "/")
    run("mount", "-t", "tmpfs", "-o", "mode=755", "tmpfs", "/run")
    Path("/run/lock").mkdir(exist_ok=True)
    for name, target in PRIVATE.items():
        (cluster.run / name).mkdir(parents=True, exist_ok=True)
        Path(target).mkdir(parents=True, exist_ok=True)
        run("mount", "--bind", cluster.run / name, target)
    Path("/var/lib/kubelet/device-plugins").mkdir(exist_ok=True)
    for name in MACHINE_SETTINGS:
        real, copy = Path("/proc/sys") / name, cluster.run / "sysctl" / name
        if real.exists():
            write(copy, real.read_text())
            run("mount", "--bind", copy, real)


def prepare_network() -> None:
    """Called by process 1, inside."""
    Path("/proc/sys/net/ipv4/ip_forward").write_text("1")
    if IPV6:
        Path("/proc/sys/net/ipv6/conf/all/forwarding").write_text("1")
    run("ip", "link", "set", "lo", "up")
    # A veth pair, as some kernels have no dummy device. The default route leads nowhere, but
    # without one the kernel says "network unreachable" before the Service rules can rewrite the
    # destination.
    run("ip", "link", "add", "node0", "type", "veth", "peer", "name", "node0p")
    # nodad: nobody else could have the address, and it would be asked about for two seconds.
    run("ip", "addr", "add", NODE_NETWORK, "dev", "node0", *(["nodad"] if IPV6 else []))
    run("ip", "link", "set", "node0", "up")
    run("ip", "link", "set", "node0p", "up")
    run("ip", "-6" if IPV6 else "-4", "route", "add", "default", "dev", "node0")


def hierarchies() -> Iterator[tuple[Path, str, list[str]]]:
    """Mount point, kind and options of every cgroup hierarchy, v1 or v2."""
    for line in Path("/proc/self/mounts").read_text().splitlines():
        fields = line.split()
        if fields[2] in ("cgroup", "cgroup2"):
            yield Path(fields[1]), fields[2], fields[3].split(",")


def make_cgroups(cluster: Cluster) -> None:
    for root, kind, options in hierarchies():
        if kind == "cgroup2" and not (root / "cgroup.controllers").read_text().strip():
            continue
        folder = root / cluster.cgroup
        folder.mkdir(exist_ok=True)
        if "cpuset" in options:
            # A new v1 cpuset is empty, and then no process can enter it.
            for name in ("cpuset.cpus", "cpuset.mems"):
                (folder / name).write_text((root / name).read_text())


def drop_cgroups(cluster: Cluster) -> None:
    for root, _, _ in hierarchies():
        for folder, _, _ in os.walk(root / cluster.cgroup, topdown=False):
            _remove(Path(folder))


def _remove(folder: Path) -> None:
    for _ in range(50):
        try:
            return folder.rmdir()
        except FileNotFoundError:
            return None
        except OSError:
            time.sleep(0.05)  # its last process is still on its way out
    say(f"could not remove {folder}")
    return None
