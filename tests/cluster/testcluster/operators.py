"""The operator's pods, as their Lease and their own metrics show them."""

from __future__ import annotations

import re
from dataclasses import dataclass

from testcluster import release
from testcluster.kube import Kube, KubectlError

PORT = 8080
CALLS = re.compile(r'flatwake_operator_api_calls_total\{resource="(.*)",verb="(.*)"\}')
READS = {"get", "list"}


@dataclass(frozen=True)
class Operators:
    """All pods of the operator; one of them leads."""

    kube: Kube
    namespace: str = release.NAMESPACE
    lease: str = "flatwake-operator"

    def pods(self) -> list[str]:
        """The names of those that aren't being deleted."""
        found = self.kube.list("pods", self.namespace, "app.kubernetes.io/name=flatwake-operator")
        return [p["metadata"]["name"] for p in found if "deletionTimestamp" not in p["metadata"]]

    def ready(self) -> set[str]:
        """The names of those that are ready."""
        found = self.kube.list("pods", self.namespace, "app.kubernetes.io/name=flatwake-operator")
        return {
            pod["metadata"]["name"]
            for pod in found
            for condition in pod["status"].get("conditions", [])
            if (condition["type"], condition["status"]) == ("Ready", "True")
        }

    def holder(self) -> str:
        """The Lease's holder, whether or not it still lives; empty when there is none."""
        found = self.kube.get("lease", self.lease, self.namespace)
        return str((found or {}).get("spec", {}).get("holderIdentity") or "")

    def leader(self) -> str:
        """The pod that leads, once one does."""

        def leads() -> str | None:
            holder = self.holder()
            living = holder in self.pods()
            return holder if living and self.metrics(holder)["flatwake_operator_leader"] else None

        return self.kube.until("a pod leads", leads, namespaces=[self.namespace])

    def metrics(self, pod: str) -> dict[str, float]:
        """A pod's samples by name and labels."""
        path = f"/api/v1/namespaces/{self.namespace}/pods/{pod}:{PORT}/proxy/metrics"
        lines = self.kube.kubectl("get", "--raw", path).splitlines()
        pairs = (line.rsplit(" ", 1) for line in lines if line and not line.startswith("#"))
        return {name: float(value) for name, value in pairs}

    def calls(self) -> dict[tuple[str, str], int]:
        """Calls to the API server by verb and resource, of all pods; the Lease's aren't counted."""
        found: dict[tuple[str, str], int] = {}
        for pod in self.pods():
            try:
                samples = self.metrics(pod)
            except KubectlError:
                continue  # it has just ended
            for name, value in samples.items():
                if match := CALLS.fullmatch(name):
                    key = (match[2], match[1])
                    found[key] = found.get(key, 0) + int(value)
        return found

    def writes(self) -> int:
        return sum(count for (verb, _), count in self.calls().items() if verb not in READS)

    def rss_mb(self) -> float:
        """Resident memory of the leader, in MB (10⁶ bytes)."""
        return self.metrics(self.leader())["process_resident_memory_bytes"] / 1e6
