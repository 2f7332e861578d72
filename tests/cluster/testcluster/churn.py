"""A hundred InferenceServers without pods, and hands that never leave them alone."""

from __future__ import annotations

import json
import random
import subprocess
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from testcluster.kube import Kube, KubectlError, Object
from testcluster.shell import say

KINDS = "deployments,services,serviceaccounts,poddisruptionbudgets,controllerrevisions"
CHILDREN = ("Deployment", "Service", "ServiceAccount", "PodDisruptionBudget")
MOST_REVISIONS = 2
SETTLED = 30
"""Changes after which a Deployment that was lost is there again."""


def server(name: str, **spec: Any) -> Object:
    """One that is wanted and has no pods: all of the operator's work and none of the node's."""
    return {
        "apiVersion": "flatwake.dev/v1alpha1",
        "kind": "InferenceServer",
        "metadata": {"name": name},
        "spec": {
            "model": {"source": "file:///models/none.gguf"},
            "accelerator": {"backend": "Cpu"},
            "replicas": 0,
            **spec,
        },
    }


@dataclass
class Churn:
    """Servers of one namespace; `done` counts what was done to them, by kind of change."""

    kube: Kube
    namespace: str
    names: list[str]
    seed: int
    done: Counter[str] = field(default_factory=Counter)
    autoscaled: set[str] = field(default_factory=set)
    began: dict[str, int] = field(default_factory=dict)
    """By server: how many changes there were when it last lost its Deployment."""

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)

    def create(self) -> None:
        self.kube.apply(*map(server, self.names), namespace=self.namespace)

    def fill(self) -> None:
        """Every server once has every child that it ever may have, and then only its usual ones."""
        full = {
            "limits": {"queue": 1},
            "access": {"from": [{"podSelector": {}}]},
            "autoscaling": {"maxReplicas": 3},
        }
        plain: dict[str, Any] = {}
        for spec in (full, plain):
            everybody = [server(name, **spec) for name in self.names]
            self.kube.apply(*everybody, namespace=self.namespace)
            self.converge(timeout_s=300)

    def converge(self, timeout_s: float) -> float:
        """Seconds until each has all of its children and a status that says so."""
        began = time.monotonic()
        self.kube.until(
            f"{len(self.names)} servers have converged",
            lambda: self.unsettled() == [],
            namespaces=["flatwake-system"],
            timeout_s=timeout_s,
        )
        return time.monotonic() - began

    def unsettled(self) -> list[str]:
        """What is missing, or too much, in words."""
        servers = {s["metadata"]["name"]: s for s in self.kube.list("infs", self.namespace)}
        faults = [f"{name} is missing" for name in set(self.names) - servers.keys()]
        for name, found in servers.items():
            conditions = {c["type"]: c for c in found.get("status", {}).get("conditions", [])}
            for kind, status in (("Accepted", "True"), ("Progressing", "False")):
                said = conditions.get(kind, {})
                current = said.get("observedGeneration") == found["metadata"]["generation"]
                if not (current and said.get("status") == status):
                    faults.append(f"{name}: {kind} is {said}")
        return faults + self._wrong_children()

    def _wrong_children(self) -> list[str]:
        found: dict[tuple[str, str], list[Object]] = {}
        for child in self.kube.list(KINDS, self.namespace, "flatwake.dev/server"):
            owner = child["metadata"]["labels"]["flatwake.dev/server"]
            found.setdefault((child["kind"], owner), []).append(child)
        faults = []
        for name in self.names:
            for kind in CHILDREN:
                names = [child["metadata"]["name"] for child in found.get((kind, name), [])]
                if names != [name]:
                    faults.append(f"{name} has {kind} {names}")
            deployments = found.get(("Deployment", name), [])
            paused = [each for each in deployments if each["spec"].get("paused")]
            faults += [f"{name}'s Deployment is paused" for _ in paused]
            revisions = len(found.get(("ControllerRevision", name), []))
            if not 1 <= revisions <= MOST_REVISIONS:
                faults.append(f"{name} has {revisions} revisions")
        return faults

    def versions(self) -> dict[str, str]:
        """The resourceVersion of every server and child, which any write changes."""
        found = self.kube.list(f"infs,{KINDS}", self.namespace)
        return {
            f"{each['kind']}/{each['metadata']['name']}": each["metadata"]["resourceVersion"]
            for each in found
        }

    def step(self) -> None:
        """One change, of a kind and of a server that chance names."""
        changes: list[Callable[[str], None]] = [
            self._edit, self._edit, self._take_access, self._scale, self._recreate,
            self._lose_a_child, self._meddle,
        ]  # fmt: skip
        change = self._random.choice(changes)
        try:
            change(self._random.choice(self.names))
        except (KubectlError, subprocess.TimeoutExpired) as error:
            # On a busy machine kubectl may run out of its time; the operator has no part in that.
            say(f"not done: {error}")
            self.done["not_done"] += 1
            return
        self.done[change.__name__.strip("_")] += 1

    def _patch(self, kind: str, name: str, body: Object) -> None:
        words = ["patch", kind, name, "--type=merge", "-p", json.dumps(body)]
        self.kube.kubectl("-n", self.namespace, *words)

    def _edit(self, name: str) -> None:
        self._patch("infs", name, {"spec": {"limits": {"queue": self._random.randint(1, 99)}}})

    def _take_access(self, name: str) -> None:
        peers = self._random.choice([None, [{"podSelector": {}}]])
        self._patch("infs", name, {"spec": {"access": {"from": peers}}})

    def _scale(self, name: str) -> None:
        # An autoscaler comes and goes. It leaves a Deployment without pods as it is, while one
        # that is made under it begins with a pod, and there is no model for any.
        settled = self.done.total() - self.began.get(name, -SETTLED) >= SETTLED
        scaling = self._random.choice([None, {"maxReplicas": 3}]) if settled else None
        self._patch("infs", name, {"spec": {"autoscaling": scaling}})
        (self.autoscaled.add if scaling else self.autoscaled.discard)(name)

    def _recreate(self, name: str) -> None:
        words = ["delete", "infs", name, "--timeout=60s"]
        self.kube.kubectl("-n", self.namespace, *words, timeout_s=70)
        self.kube.apply(server(name), namespace=self.namespace)
        self.autoscaled.discard(name)
        self.began[name] = self.done.total()

    def _lose_a_child(self, name: str) -> None:
        whole = [] if name in self.autoscaled else ["deployment"]
        kind = self._random.choice([*whole, "service", "pdb"])
        if kind == "deployment":
            self.began[name] = self.done.total()
        self.kube.kubectl("-n", self.namespace, "delete", kind, name, "--ignore-not-found")

    def _meddle(self, name: str) -> None:
        body = json.dumps({"spec": {"selector": {"flatwake.dev/server": "nobody"}}})
        words = ["patch", "service", name, "--type=merge", "-p", body]
        try:
            self.kube.kubectl("-n", self.namespace, *words)
        except KubectlError as error:
            if "NotFound" not in str(error):  # it may be on its way
                raise
