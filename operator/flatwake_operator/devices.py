"""Devices in the cluster: how many there are, and how many are free for one more pod."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from flatwake_service.manifest import InferenceServer, quantity

from flatwake_operator.children.architectures import PREFIXES, device_ids, has_device_labels
from flatwake_operator.settings import Object


@dataclass(frozen=True)
class Devices:
    """Devices on nodes that a server's pods may use.

    allocatable: healthy ones. capacity: all. free: by node, not asked for by any pod.
    """

    capacity: int
    allocatable: int
    free: dict[str, int]

    @property
    def total_free(self) -> int:
        return sum(self.free.values())


def advertised(nodes: Iterable[Object], resource: str) -> bool:
    """Whether any node has ever offered the resource (its count may be 0 for the moment)."""
    return any(resource in _capacity(node) for node in nodes)


def labelled(nodes: Iterable[Object]) -> bool:
    """Whether any node carries device labels."""
    return any(has_device_labels(node["metadata"].get("labels") or {}) for node in nodes)


def count(server: InferenceServer, nodes: Iterable[Object], pods: Iterable[Object]) -> Devices:
    """Counts devices of the server's resource; pods are all of the cluster's."""
    resource = server.spec.accelerator.resource
    used: dict[str, int] = {}
    for pod in pods:
        node = (pod.get("spec") or {}).get("nodeName")
        if node and (pod.get("status") or {}).get("phase") not in ("Succeeded", "Failed"):
            used[node] = used.get(node, 0) + _asked(pod, resource)
    capacity = allocatable = 0
    free: dict[str, int] = {}
    for node in nodes:
        if not fits(server, node):
            continue
        name = node["metadata"]["name"]
        offered = _number((node.get("status") or {}).get("allocatable", {}).get(resource))
        capacity += _number(_capacity(node).get(resource))
        allocatable += offered
        free[name] = max(0, offered - used.get(name, 0))
    return Devices(capacity, allocatable, free)


def fits(server: InferenceServer, node: Object) -> bool:
    """Whether a server's pods may run on a node, as far as selectors, taints and labels tell."""
    labels = node["metadata"].get("labels") or {}
    wanted = server.spec.template.node_selector
    if any(labels.get(key) != value for key, value in wanted.items()):
        return False
    spec = node.get("spec") or {}
    if spec.get("unschedulable"):
        return False
    tolerations = [t.model_dump() for t in server.spec.template.tolerations]
    if not all(_tolerated(taint, tolerations) for taint in spec.get("taints") or []):
        return False
    architectures = server.spec.accelerator.architectures
    if not architectures or not has_device_labels(labels):
        return True
    ids = device_ids(architectures)
    return any(
        labels.get(f"{prefix}.device-id") == device or f"{prefix}.device-id.{device}" in labels
        for prefix in PREFIXES
        for device in ids
    )


def _tolerated(taint: Object, tolerations: list[Object]) -> bool:
    if taint.get("effect") == "PreferNoSchedule":
        return True
    for toleration in tolerations:
        if toleration.get("effect") not in (None, "", taint.get("effect")):
            continue
        if toleration.get("operator", "Equal") == "Exists":
            if toleration.get("key") in (None, "", taint.get("key")):
                return True
        elif (toleration.get("key"), toleration.get("value") or "") == (
            taint.get("key"),
            taint.get("value") or "",
        ):
            return True
    return False


def _asked(pod: Object, resource: str) -> int:
    """What a pod takes: its containers together, or its largest init container."""
    spec = pod["spec"]

    def of(container: Object) -> int:
        resources = container.get("resources") or {}
        limits = {**(resources.get("requests") or {}), **(resources.get("limits") or {})}
        return _number(limits.get(resource))

    running = sum(of(container) for container in spec.get("containers") or [])
    starting = max((of(container) for container in spec.get("initContainers") or []), default=0)
    return max(running, starting)


def _capacity(node: Object) -> Object:
    capacity: Object = (node.get("status") or {}).get("capacity") or {}
    return capacity


def _number(value: Any) -> int:
    return int(quantity(str(value))) if value is not None else 0
