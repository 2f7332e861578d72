"""The process that starts a cluster's components and keeps them running.

In a whole cluster it is process 1 of the pid namespace; without a node it is an ordinary process
whose components end with it.
"""

from __future__ import annotations

import ctypes
import json
import os
import select
import signal
import ssl
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

from testcluster import components, layout, namespace
from testcluster.layout import NODE, Cluster
from testcluster.shell import say, write

# A machine that also compiles something may need long for what takes seconds on an idle one.
STEP_LIMIT_S = 180
PR_SET_PDEATHSIG = 1


class Supervisor:
    """Starts components, waits for them, and starts again what ends."""

    def __init__(self, cluster: Cluster, commands: dict[str, list[str]], owner: int | None):
        self.cluster = cluster
        self.commands = commands
        self.owner = owner  # a pidfd: readable once the process that wanted the cluster has gone
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.environment = {
            name: value
            for name, value in os.environ.items()
            # A proxy of the machine's must not be asked for the cluster's addresses.
            if name != "KUBECONFIG" and not name.lower().endswith("_proxy")
        }
        self.api = Api(cluster)
        self._began = time.monotonic()
        self._times: dict[str, float] = {}
        (cluster.run / "log").mkdir(exist_ok=True)

    def start(self, *names: str) -> None:
        for name in names:
            with (self.cluster.run / f"log/{name}.log").open("ab") as log:
                self.processes[name] = subprocess.Popen(
                    self.commands[name], stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                    env=self.environment, cwd=self.cluster.run, preexec_fn=_die_with_parent,
                )  # fmt: skip

    def reap(self) -> tuple[str, str] | None:
        """A component that ended and why. Also takes the orphans that process 1 inherits."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return None
            if pid == 0:
                return None
            for name, process in self.processes.items():
                if process.pid == pid:
                    code = os.waitstatus_to_exitcode(status)
                    return name, f"{name} ended with {code}: {self._last_lines(name)}"

    def _last_lines(self, name: str) -> str:
        lines = (self.cluster.run / f"log/{name}.log").read_text(errors="replace").splitlines()
        return " | ".join(lines[-3:])[-1000:]

    def mark(self, what: str) -> None:
        self._times[what] = round(time.monotonic() - self._began, 2)
        write(self.cluster.run / "times.json", json.dumps(self._times))

    def until(self, what: str, holds: Callable[[], bool]) -> None:
        """Wait for a condition; a component that ends meanwhile ends the cluster."""
        end = time.monotonic() + STEP_LIMIT_S
        last: object = "not yet"
        while True:
            try:
                if holds():
                    return self.mark(what)
                last = "not yet"
            except (OSError, ValueError, RuntimeError, KeyError) as error:
                last = error  # not listening, or not there yet: what it said explains a time-out
            ended = self.reap()
            if ended:
                self.fail(ended[1])
            if time.monotonic() > end:
                self.fail(f"no {what} after {STEP_LIMIT_S} s: {last}")
            self._end_with_owner()
            time.sleep(0.05)

    def fail(self, why: str) -> NoReturn:
        write(self.cluster.run / "failed", why)
        sys.exit(1)  # the kernel ends all the others

    def _end_with_owner(self, wait_s: float = 0) -> None:
        if self.owner is not None and select.select([self.owner], [], [], wait_s)[0]:
            say("the process that this cluster was made for has ended")
            sys.exit(0)

    def keep(self) -> NoReturn:
        """Start again whatever ends, for as long as the cluster is wanted."""
        self.mark("ready")
        while True:
            pids = {name: process.pid for name, process in self.processes.items()}
            write(self.cluster.run / "pids.json", json.dumps(pids))
            write(self.cluster.run / "ready", "")
            while not (ended := self.reap()):
                if self.owner is None:
                    time.sleep(0.25)
                else:
                    self._end_with_owner(0.25)
            # A test may kill a component to see what its own program makes of it.
            name, why = ended
            say(f"{why}; starting it again")
            time.sleep(0.5)
            self.start(name)

    def call(self, *command: str | Path) -> bool:
        """Run a program. Not subprocess.run's: `reap` could take its exit status."""
        words = [str(word) for word in command]
        env = dict(self.environment, KUBECONFIG=str(self.cluster.kubeconfig))
        done = subprocess.run(words, env=env, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"{words[0]}: {done.stderr.strip()[-400:]}")
        return True


class Api:
    """GET requests to the cluster's API server, as its administrator."""

    def __init__(self, cluster: Cluster):
        self.base = f"https://127.0.0.1:{components.Ports.of(cluster).api}"
        context = ssl.create_default_context(cafile=cluster.pki / "ca.crt")
        context.load_cert_chain(cluster.pki / "admin.crt", cluster.pki / "admin.key")
        self._opener = urllib.request.build_opener(
            urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context)
        )

    def get(self, path: str, base: str | None = None) -> str:
        with self._opener.open((base or self.base) + path, timeout=5) as response:
            return str(response.read().decode())

    def has(self, path: str, base: str | None = None) -> bool:
        return bool(self.get(path, base))

    def node_is_ready(self) -> bool:
        node = json.loads(self.get(f"/api/v1/nodes/{NODE}"))
        conditions = node["status"].get("conditions", [])
        ready = any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)
        return ready and not node["spec"].get("taints")


def supervise(cluster: Cluster, owner: int | None) -> NoReturn:
    """Process 1 of a whole cluster."""
    namespace.prepare_mounts(cluster)
    namespace.prepare_network()
    it = Supervisor(cluster, components.commands(cluster), owner)
    containerd = ("ctr", "-a", cluster.containerd_socket)
    account = "/api/v1/namespaces/default/serviceaccounts/default"
    authority = "/api/v1/namespaces/default/configmaps/kube-root-ca.crt"
    it.start("etcd", "containerd", "kube-apiserver")
    it.until("containerd", lambda: it.call(*containerd, "version"))
    for name in ("pause", "busybox"):
        archive = layout.archives() / f"{name}.tar"
        it.call(*containerd, "-n", "k8s.io", "images", "import", archive)
    it.mark("images")
    it.until("apiserver", lambda: it.api.get("/readyz") == "ok")
    it.start("kube-controller-manager", "kube-scheduler", "kubelet", "kube-proxy", "coredns")
    kubectl, boot = layout.binaries() / "kubectl", cluster.run / "etc/boot.json"
    it.until("dns service", lambda: it.call(kubectl, "apply", "-f", boot))
    it.until("node", it.api.node_is_ready)
    # Pods are refused until these two exist.
    it.until("default account", lambda: it.api.has(account))
    it.until("root ca", lambda: it.api.has(authority))
    it.until("coredns", lambda: it.api.has("/ready", "http://127.0.0.1:8181"))
    it.until("kube-proxy", lambda: it.api.has("/healthz", "http://127.0.0.1:10256"))
    it.keep()


def supervise_api(cluster: Cluster, owner: int | None, *, controllers: bool) -> NoReturn:
    """An API server without a node: no namespaces, so no root."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    it = Supervisor(cluster, components.api_commands(cluster), owner)
    it.start("etcd", "kube-apiserver")
    it.until("apiserver", lambda: it.api.get("/readyz") == "ok")
    it.until("namespace", lambda: it.api.has("/api/v1/namespaces/default"))
    if controllers:
        it.start("kube-controller-manager")
        account = "/api/v1/namespaces/default/serviceaccounts/default"
        it.until("default account", lambda: it.api.has(account))
    it.keep()


def _die_with_parent() -> None:
    """In the child: the kernel ends it when the supervisor ends, however that happens."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
