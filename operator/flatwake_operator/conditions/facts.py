"""What is known about a server, and what a condition says of it."""

from dataclasses import dataclass

from flatwake_service.manifest import Reason

from flatwake_operator.devices import Devices
from flatwake_operator.pods import Fault, Pod
from flatwake_operator.settings import Decision, Object


@dataclass(frozen=True)
class Facts:
    """What is known about a server.

    refusal: why the spec can't be followed. trouble: what failed in the operator's own work.
    drift: a pod has another model than the others, and deleting one didn't help.
    missing_api: what was asked for and isn't made, since the cluster lacks its API.
    why_backend, why_strategy: the reasons behind the decision. desired: pods that should run.
    """

    generation: int
    refusal: Fault | None = None
    trouble: Fault | None = None
    drift: Fault | None = None
    note: str = ""
    missing_api: str | None = None
    decision: Decision | None = None
    version: str = ""
    why_backend: str = ""
    why_strategy: str = ""
    desired: int = 1
    deployment: Object | None = None
    pods: tuple[Pod, ...] = ()
    devices: Devices | None = None
    resource: str = ""
    autoscaler: Object | None = None


@dataclass(frozen=True)
class Condition:
    type: str
    status: str
    reason: Reason
    message: str


def living(pods: tuple[Pod, ...]) -> list[Pod]:
    """Those of the present template that aren't being ended."""
    return [pod for pod in pods if pod.current and not pod.terminating]


def why_none(facts: Facts) -> str:
    if facts.autoscaler is None:
        return "no pod is wanted: raise replicas"
    name = facts.autoscaler["metadata"]["name"]
    return (
        "there is no pod, and an autoscaler never makes the first one: "
        f"kubectl scale deployment {name} --replicas=1"
    )


def waits_for(pod: Pod, leaving: Pod) -> str:
    return f"pod {pod.name} waits for the device of pod {leaving.name}, which drains"
