"""up, down, status, exec and load."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NoReturn

from testcluster import archive, binaries, config, layout, namespace, packages, pki
from testcluster.components import Ports, make_tokens
from testcluster.layout import SERVICE_CIDR, Cluster
from testcluster.shell import ClusterError, process_start, run, say, write

START_LIMIT_S = 600

# The holders that this very process started: their parent must take their exit status.
_children: dict[int, subprocess.Popen[bytes]] = {}


def up(
    cluster: Cluster,
    *,
    api_only: bool = False,
    controllers: bool = False,
    services: str = "",
    owner: int | None = None,
) -> None:
    """Start a cluster and wait until it can run pods (or, with api_only, take requests).

    services: ranges of Services' addresses that aren't the usual one (with api_only). With
    `owner`, a process id, the cluster ends when that process has ended.
    """
    if cluster.holder():
        raise ClusterError(f"{cluster.name} is already up: `cluster down {cluster.name}` stops it")
    if not api_only:
        _check_machine()
    if not binaries.is_built():
        binaries.build()
    sweep()
    down(cluster)
    began = time.monotonic()
    cluster.run.mkdir(mode=0o700, parents=True)
    ports = Ports.free(services or SERVICE_CIDR) if api_only else Ports()
    if api_only:
        ports.remember(cluster)
        make_tokens(cluster)
    pki.make(cluster, ports.api)
    if owner is not None:
        write(cluster.run / "owned", str(owner))
    if not api_only:
        config.make(cluster)
        namespace.make_cgroups(cluster)
    try:
        _start(cluster, api_only=api_only, controllers=controllers, owner=owner)
    except BaseException:
        # The folder stays, for its logs; the next `up` of this name removes it.
        if holder := cluster.holder():
            os.kill(holder, signal.SIGKILL)
        raise
    times = (cluster.run / "times.json").read_text()
    say(f"{cluster.name} is ready after {time.monotonic() - began:.1f} s {times}")


def _check_machine() -> None:
    if os.geteuid():
        raise ClusterError("a whole cluster needs root: --api-only doesn't")
    if packages.missing(images=False):
        packages.install()
    archive.make_small_images()


def _start(cluster: Cluster, *, api_only: bool, controllers: bool, owner: int | None) -> None:
    words = [sys.executable, str(layout.SOURCES / "cluster"), "_supervise", cluster.name]
    if not api_only:
        words = [*namespace.UNSHARE, *words]
    if controllers:
        words.append("--controllers")
    descriptors = []
    if owner is not None:
        # A descriptor and not the number, which means nothing in another pid namespace.
        descriptors.append(os.pidfd_open(owner))
        os.set_inheritable(descriptors[0], True)
        words += ["--owner-fd", str(descriptors[0])]
    with (cluster.run / "supervisor.log").open("ab") as log:
        holder = subprocess.Popen(
            words, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
            pass_fds=descriptors, env=dict(os.environ, CLUSTER_DIR=str(layout.work_folder())),
        )  # fmt: skip
    for descriptor in descriptors:
        os.close(descriptor)
    _children[holder.pid] = holder
    write(cluster.run / "holder", f"{holder.pid} {process_start(holder.pid)}")
    end = time.monotonic() + START_LIMIT_S
    while not (cluster.run / "ready").exists():
        if holder.poll() is not None or time.monotonic() > end:
            raise ClusterError(f"{cluster.name} did not start: {_reason(cluster)}")
        time.sleep(0.05)


def _reason(cluster: Cluster) -> str:
    failed, log = cluster.run / "failed", cluster.run / "supervisor.log"
    why = failed.read_text() if failed.exists() else log.read_text()[-2000:]
    return f"{why} (logs are in {cluster.run}/log)"


def down(cluster: Cluster) -> bool:
    """Stop a cluster and remove everything that it made; False if there was nothing."""
    if not cluster.run.exists():
        return False
    holder = cluster.holder()
    if holder:
        # --kill-child makes process 1 die with its parent, and process 1 stays until the kernel
        # has ended every other process of the namespace. With the last one its mounts and its
        # network are gone. Without a node the components die with the supervisor.
        last = None if cluster.api_only else process_one(holder)
        os.kill(holder, signal.SIGKILL)
        wait_for_end(holder, last)
        if child := _children.pop(holder, None):
            child.wait()
    if not cluster.api_only:
        namespace.drop_cgroups(cluster)
    for _ in range(100):
        shutil.rmtree(cluster.run, ignore_errors=True)
        if not cluster.run.exists():
            return True
        time.sleep(0.1)
    raise ClusterError(f"could not remove {cluster.run}")


def wait_for_end(*pids: int | None) -> None:
    """Wait until none of these processes lives."""
    for _ in range(600):
        if not any(pid and process_start(pid) for pid in pids):
            return
        time.sleep(0.05)
    raise ClusterError(f"one of the processes {pids} does not end")


def sweep() -> None:
    """Remove what clusters left whose owner ended without stopping them."""
    for cluster in layout.existing():
        abandoned = (cluster.run / "owned").exists() and cluster.holder() is None
        # One that is just being started has no holder yet.
        if abandoned and time.time() - cluster.run.stat().st_mtime > 60:
            down(cluster)


def process_one(holder: int) -> int | None:
    """The holder's only child, process 1 of the pid namespace, as numbered outside."""
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                text = Path(f"/proc/{entry}/stat").read_text()
            except OSError:
                continue
            if text[text.rindex(")") + 2 :].split()[1] == str(holder):
                return int(entry)
    return None


def network_of(cluster: Cluster) -> str:
    """The file that stands for the cluster's network namespace."""
    first = process_one(cluster.require_running())
    if cluster.api_only or first is None:
        raise ClusterError(f"{cluster.name} has no network of its own")
    return f"/proc/{first}/ns/net"


def environment(cluster: Cluster) -> dict[str, str]:
    """What a program needs to find the cluster and its tools."""
    return dict(
        os.environ,
        KUBECONFIG=str(cluster.kubeconfig),
        PATH=f"{layout.binaries()}:{os.environ['PATH']}",
        CLUSTER_RUN=str(cluster.run),
        CLUSTER_NAME=cluster.name,
    )


def inside(cluster: Cluster, command: Sequence[str]) -> list[str]:
    """The command line that runs a command in the cluster's network."""
    if cluster.api_only:
        return list(command)
    return ["nsenter", f"--net={network_of(cluster)}", *command]


def execute(cluster: Cluster, command: Sequence[str]) -> NoReturn:
    """Become the command."""
    cluster.require_running()
    words = inside(cluster, command)
    try:
        os.execvpe(words[0], words, environment(cluster))
    except FileNotFoundError:
        raise ClusterError(f"there is no program {words[0]}") from None


def load(cluster: Cluster, archives: Sequence[Path]) -> None:
    """Import OCI archives into the node."""
    cluster.require_running()
    for path in archives:
        if not path.exists():
            raise ClusterError(f"there is no archive {path}")
        run("ctr", "-a", cluster.containerd_socket, "-n", "k8s.io", "images", "import", path)


def status(cluster: Cluster) -> Iterator[str]:
    """Lines about the components, their memory and the start-up times."""
    holder = cluster.require_running()
    pids: dict[str, int] = json.loads((cluster.run / "pids.json").read_text())
    if cluster.api_only:
        seen = {pid: (pid, _resident_mib(pid)) for pid in pids.values()}
    else:
        first = process_one(holder)
        assert first is not None, "a whole cluster has a process 1"
        pids, seen = {"supervisor": 1, **pids}, _processes_beside(first)
        yield f"network: /proc/{first}/ns/net"
    for name, pid in pids.items():
        found = seen.get(pid)
        yield f"{name:26}{found[0]:>8}{found[1]:>6} MiB" if found else f"{name:26}    gone"
    yield f"kubeconfig: {cluster.kubeconfig}"
    yield f"start-up: {(cluster.run / 'times.json').read_text()}"


def _processes_beside(first: int) -> dict[int, tuple[int, int]]:
    """Number inside → (number outside, resident MiB), for all of one pid namespace."""
    space, found = os.readlink(f"/proc/{first}/ns/pid"), {}
    for entry in filter(str.isdigit, os.listdir("/proc")):
        try:
            if os.readlink(f"/proc/{entry}/ns/pid") != space:
                continue
            text = Path(f"/proc/{entry}/status").read_text()
        except OSError:
            continue
        numbers = re.search(r"^NSpid:\s+(.*)$", text, re.M)
        assert numbers, "every process has a number"
        found[int(numbers[1].split()[-1])] = (int(entry), _resident_mib(int(entry)))
    return found


def _resident_mib(pid: int) -> int:
    try:
        text = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0
    found = re.search(r"^VmRSS:\s+(\d+)", text, re.M)
    return int(found[1]) // 1024 if found else 0
