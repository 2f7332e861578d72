"""The kinds that the operator reads and writes, and their places in the API."""

from dataclasses import dataclass
from typing import Final

from flatwake_operator.settings import Object


@dataclass(frozen=True)
class Kind:
    """optional: the API may be absent from a cluster. namespaced: lives in a namespace."""

    name: str
    version: str
    plural: str
    optional: bool = False
    namespaced: bool = True

    @property
    def root(self) -> str:
        """The path of the API's group and version."""
        return f"/apis/{self.version}" if "/" in self.version else f"/api/{self.version}"

    @property
    def group(self) -> str:
        return self.version.rpartition("/")[0]

    def path(self, namespace: str | None, name: str | None = None, part: str | None = None) -> str:
        """The path of an object, or of a list (of all namespaces if none is given)."""
        pieces = [self.root]
        if self.namespaced and namespace:
            pieces += ["namespaces", namespace]
        pieces += [piece for piece in (self.plural, name, part) if piece]
        return "/".join(pieces)


SERVER: Final = Kind("InferenceServer", "flatwake.dev/v1alpha1", "inferenceservers")
ACCOUNT: Final = Kind("ServiceAccount", "v1", "serviceaccounts")
CONFIG_MAP: Final = Kind("ConfigMap", "v1", "configmaps")
CLAIM: Final = Kind("PersistentVolumeClaim", "v1", "persistentvolumeclaims")
SERVICE: Final = Kind("Service", "v1", "services")
DEPLOYMENT: Final = Kind("Deployment", "apps/v1", "deployments")
REVISION: Final = Kind("ControllerRevision", "apps/v1", "controllerrevisions")
BUDGET: Final = Kind("PodDisruptionBudget", "policy/v1", "poddisruptionbudgets")
NETWORK: Final = Kind("NetworkPolicy", "networking.k8s.io/v1", "networkpolicies")
AUTOSCALER: Final = Kind("HorizontalPodAutoscaler", "autoscaling/v2", "horizontalpodautoscalers")
MONITOR: Final = Kind("PodMonitor", "monitoring.coreos.com/v1", "podmonitors", optional=True)
POOL: Final = Kind(
    "InferencePool", "inference.networking.k8s.io/v1", "inferencepools", optional=True
)
DEVICE: Final = Kind(
    "ResourceClaimTemplate", "resource.k8s.io/v1", "resourceclaimtemplates", optional=True
)
POD: Final = Kind("Pod", "v1", "pods")
NODE: Final = Kind("Node", "v1", "nodes", namespaced=False)
EVENT: Final = Kind("Event", "v1", "events")
LEASE: Final = Kind("Lease", "coordination.k8s.io/v1", "leases")

CHILDREN: Final = (
    ACCOUNT, CONFIG_MAP, CLAIM, DEVICE, SERVICE, NETWORK, BUDGET,
    MONITOR, POOL, AUTOSCALER, REVISION, DEPLOYMENT,
)  # fmt: skip
"""Kinds of children, in the order in which they are applied: what pods need comes first."""

BY_NAME: Final = {kind.name: kind for kind in (*CHILDREN, SERVER, POD, NODE, EVENT, LEASE)}


def kind_of(thing: Object) -> Kind:
    return BY_NAME[thing["kind"]]
