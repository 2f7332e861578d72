"""kubectl against one cluster, with waits that end and explain themselves."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypeVar

from testcluster import layout, lifecycle
from testcluster.layout import Cluster

T = TypeVar("T")
Object = dict[str, Any]
"""A Kubernetes object as JSON: its shape is the API's."""

# Kinds that come and go by themselves.
RESTLESS = {"events", "events.events.k8s.io", "componentstatuses", "leases.coordination.k8s.io",
            "ipaddresses.networking.k8s.io", "apiservices.apiregistration.k8s.io",
            "flowschemas.flowcontrol.apiserver.k8s.io",
            "prioritylevelconfigurations.flowcontrol.apiserver.k8s.io"}  # fmt: skip


class KubectlError(Exception):
    """kubectl refused; the message is its own."""


class Kube:
    """One cluster's kubectl; every call has a time limit."""

    def __init__(self, cluster: Cluster):
        self.cluster = cluster
        self._prefix = lifecycle.inside(cluster, [str(layout.binaries() / "kubectl")])
        self._environment = lifecycle.environment(cluster)

    def kubectl(self, *words: str, text: str | None = None, timeout_s: float = 60) -> str:
        """What kubectl prints; a KubectlError has what it said instead."""
        return self._run([*self._prefix, *words], text, timeout_s)

    def program(self, *words: str | Path, timeout_s: float = 120) -> str:
        """What another program prints in the cluster's network (helm, say)."""
        return self._run(lifecycle.inside(self.cluster, list(map(str, words))), None, timeout_s)

    def _run(self, words: list[str], text: str | None, timeout_s: float) -> str:
        done = subprocess.run(
            words, input=text, capture_output=True, text=True, env=self._environment,
            timeout=timeout_s, check=False,
        )  # fmt: skip
        if done.returncode:
            raise KubectlError((done.stderr or done.stdout).strip())
        return done.stdout

    def apply(self, *objects: Object, namespace: str | None = None) -> str:
        """Server-side apply, as one list."""
        document = {"apiVersion": "v1", "kind": "List", "items": list(objects)}
        place = ["-n", namespace] if namespace else []
        words = ["apply", "--server-side", "--force-conflicts", "--field-manager=test", "-f", "-"]
        return self.kubectl(*place, *words, text=json.dumps(document))

    def get(self, kind: str, name: str, namespace: str | None = None) -> Object | None:
        place = ["-n", namespace] if namespace else []
        found = self.kubectl(*place, "get", kind, name, "-o", "json", "--ignore-not-found")
        return json.loads(found) if found.strip() else None

    def list(self, kind: str, namespace: str, selector: str = "") -> list[Object]:
        words = ["-n", namespace, "get", kind, "-o", "json", "-l", selector]
        items: list[Object] = json.loads(self.kubectl(*words))["items"]
        return items

    def exec(self, namespace: str, pod: str, *command: str, timeout_s: float = 60) -> str:
        words = ["-n", namespace, "exec", pod, "--", *command]
        return self.kubectl(*words, timeout_s=timeout_s)

    def everything(self) -> set[str]:
        """The names of all objects but those that come and go by themselves."""
        kinds = self.kubectl("api-resources", "--verbs=list", "-o", "name").split()
        wanted = ",".join(sorted(set(kinds) - RESTLESS))
        template = "{range .items[*]}{.kind}/{.metadata.namespace}/{.metadata.name}{'\\n'}{end}"
        words = ["get", wanted, "--all-namespaces", "-o", f"jsonpath={template}"]
        return set(self.kubectl(*words).splitlines())

    def until(
        self,
        what: str,
        check: Callable[[], T | None],
        *,
        namespaces: Iterable[str] = (),
        timeout_s: float = 60,
    ) -> T:
        """Wait until the check gives something true, and give it.

        When it doesn't in time, or when it raises an AssertionError, the failure tells the state
        of every pod of the namespaces, their events and the ends of their logs.
        """
        end = time.monotonic() + timeout_s
        last: object = None
        while time.monotonic() < end:
            try:
                if (found := check()) is not None and found is not False:
                    return found
                last = found
            except (KubectlError, subprocess.TimeoutExpired) as error:
                # Not there yet, or the API server is just being restarted, or the machine is so
                # busy that one look takes longer than it may: how long to wait is timeout_s alone.
                last = error
            time.sleep(0.3)
        text = "\n".join(self.explain(namespace) for namespace in namespaces)
        raise AssertionError(f"not within {timeout_s:.0f} s: {what} (last: {last})\n{text}")

    def explain(self, namespace: str) -> str:
        """What a person would look at first, for a failure's message."""
        looks = (
            ["get", "infs", "-o", "wide"],
            ["get", "infs", "-o", "jsonpath={.items[*].status}"],
            ["get", "deployments,replicasets,pods,pvc", "-o", "wide"],
            ["get", "events", "--sort-by=.lastTimestamp"],
        )
        parts = [f"--- namespace {namespace}"]
        parts += [self._try("-n", namespace, *words)[-6000:] for words in looks]
        for pod in self._try("-n", namespace, "get", "pods", "-o", "name").split():
            words = ["-n", namespace, "logs", pod, "--all-containers", "--prefix", "--tail=30"]
            parts.append(f"--- {pod}\n{self._try(*words)[-5000:]}")
            parts.append(self._try(*words, "--previous")[-3000:])
        return "\n".join(parts)

    def _try(self, *words: str) -> str:
        try:
            return self.kubectl(*words, timeout_s=20)
        except (KubectlError, subprocess.TimeoutExpired) as error:
            return f"({' '.join(words[2:5])}: {error})"
