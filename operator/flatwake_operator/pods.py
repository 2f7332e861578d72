"""What a pod's own status says: which revision it is of, whether it serves, what ails it."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from flatwake_service.manifest import Reason, ServerStatus, Termination

from flatwake_operator.settings import Object


@dataclass(frozen=True)
class Fault:
    """One thing that is wrong, in a word of the closed list and in words that say what to do."""

    reason: Reason
    message: str


@dataclass(frozen=True)
class Pod:
    """A pod as conditions look at it.

    current: of the Deployment's present template. report: its own /status, None if unknown.
    unschedulable_since: when the scheduler first found no node for it.
    creating_since: when it got its node, if no container has started there yet.
    fetched: its model is there, and its server starts or runs.
    """

    name: str
    uid: str
    current: bool
    ready: bool
    terminating: bool
    ip: str | None
    pin: str | None
    fault: Fault | None
    report: ServerStatus | None = None
    unschedulable_since: datetime | None = None
    creating_since: datetime | None = None
    restarts: int = 0
    fetched: bool = False


WAITING: dict[str, tuple[Reason, str]] = {
    "ErrImagePull": (Reason.IMAGE_UNAVAILABLE, "check spec.image and spec.imagePullSecrets"),
    "ImagePullBackOff": (Reason.IMAGE_UNAVAILABLE, "check spec.image and spec.imagePullSecrets"),
    "InvalidImageName": (Reason.IMAGE_UNAVAILABLE, "correct spec.image"),
    "ErrImageNeverPull": (Reason.IMAGE_UNAVAILABLE, "bring the image to the node"),
    "CreateContainerConfigError": (
        Reason.CONTAINER_CONFIG,
        "create what spec.template refers to, or correct it",
    ),
    "CreateContainerError": (Reason.CONTAINER_CONFIG, "correct spec.template"),
    "RunContainerError": (Reason.CONTAINER_CONFIG, "correct spec.template"),
}
FIELDS: dict[Reason, str] = {
    Reason.SOURCE_INVALID: "spec.model.source",
    Reason.SOURCE_NOT_FOUND: "spec.model.source",
    Reason.SOURCE_DENIED: "spec.model.tokenSecret",
    Reason.SOURCE_UNREACHABLE: "spec.model.source",
    Reason.DIGEST_MISMATCH: "spec.model.digest",
    Reason.CACHE_FULL: "spec.model.cache",
    Reason.NO_PROGRESS: "spec.startupTimeout",
    Reason.MODEL_MISSING: "spec.model.source",
    Reason.MODEL_UNREADABLE: "spec.model.source",
    Reason.MODEL_UNSUPPORTED: "spec.model.source",
    Reason.CHAT_TEMPLATE_INVALID: "spec.model.chatTemplate",
    Reason.OUT_OF_MEMORY: "spec.engine and spec.template.resources",
    Reason.DEVICE_HUNG: "spec.limits.stepTimeout",
}
"""Where a manifest has what a pod's message is about: the pod itself knows of options alone."""
FAILED_MEMORY = timedelta(minutes=10)


def view(pod: Object, template: Object | None, report: ServerStatus | None) -> Pod:
    """A pod beside the Deployment's present template."""
    meta = pod["metadata"]
    status = pod.get("status") or {}
    conditions = {c["type"]: c for c in status.get("conditions") or []}
    containers = _container_statuses(status)
    scheduled = conditions.get("PodScheduled", {})
    unschedulable = scheduled.get("status") == "False"
    return Pod(
        name=meta["name"],
        uid=meta["uid"],
        current=template is not None and _is_of(pod, template),
        ready=conditions.get("Ready", {}).get("status") == "True",
        terminating="deletionTimestamp" in meta,
        ip=status.get("podIP"),
        pin=(meta.get("annotations") or {}).get("flatwake.dev/pin"),
        fault=_fault(pod, conditions, containers),
        report=report,
        unschedulable_since=(
            datetime.fromisoformat(scheduled["lastTransitionTime"]) if unschedulable else None
        ),
        creating_since=_creating_since(scheduled, containers),
        restarts=sum(container.get("restartCount", 0) for container in containers),
        fetched=_is_fetched(status),
    )


def failed_lately(pods: Iterable[Object], template: Object | None, now: datetime) -> Fault | None:
    """Why the node ended a pod of the present template, if it did so within FAILED_MEMORY.

    Such a pod stays as it is and gets a successor, which often goes the same way.
    """
    found = [
        (ended, seen.fault)
        for pod in pods
        if (pod.get("status") or {}).get("phase") == "Failed"
        and (seen := view(pod, template, None)).fault
        and seen.current
        and now - (ended := _ended_at(pod)) < FAILED_MEMORY
    ]
    return max(found, key=lambda pair: pair[0], default=(now, None))[1]


def _ended_at(pod: Object) -> datetime:
    stamps = [c.get("lastTransitionTime") for c in pod["status"].get("conditions") or []]
    known = list(filter(None, stamps)) or [pod["metadata"]["creationTimestamp"]]
    return datetime.fromisoformat(max(known))


def _creating_since(scheduled: Object, containers: list[Object]) -> datetime | None:
    waits = {((c.get("state") or {}).get("waiting") or {}).get("reason") for c in containers}
    if scheduled.get("status") != "True" or not waits <= {"ContainerCreating", "PodInitializing"}:
        return None
    return datetime.fromisoformat(scheduled["lastTransitionTime"])


def _is_of(pod: Object, template: Object) -> bool:
    # A restart by kubectl is an annotation too, so pods of before and after it differ.
    mine = pod["metadata"].get("annotations") or {}
    wanted = (template.get("metadata") or {}).get("annotations") or {}
    return all(mine.get(key) == value for key, value in wanted.items())


def _is_fetched(status: Object) -> bool:
    ended = [
        (c.get("state") or {}).get("terminated") for c in status.get("initContainerStatuses") or []
    ]
    return bool(ended) and all(each and each.get("exitCode") == 0 for each in ended)


def _container_statuses(status: Object) -> list[Object]:
    return [*(status.get("initContainerStatuses") or []), *(status.get("containerStatuses") or [])]


def _fault(pod: Object, conditions: dict[str, Object], containers: list[Object]) -> Fault | None:
    status = pod.get("status") or {}
    name = pod["metadata"]["name"]
    if status.get("reason") == "Evicted":
        text = f"pod {name} was evicted: {status.get('message', '')}".strip()
        cure = ": raise spec.model.cache.size" if "flatwake-cache" in text else ""
        return Fault(Reason.EVICTED, text + cure)
    if status.get("reason") == "UnexpectedAdmissionError":
        text = status.get("message", "")
        return Fault(Reason.DEVICE_UNHEALTHY, f"pod {name} was refused by its node: {text}")
    scheduled = conditions.get("PodScheduled", {})
    if scheduled.get("status") == "False" and scheduled.get("reason") == "Unschedulable":
        return Fault(Reason.UNSCHEDULABLE, f"pod {name}: {scheduled.get('message', '')}")
    for container in containers:
        fault = _container_fault(name, container)
        if fault is not None:
            return fault
    return None


def _container_fault(pod: str, container: Object) -> Fault | None:
    state = container.get("state") or {}
    waiting = state.get("waiting")
    if waiting and waiting.get("reason") in WAITING:
        reason, cure = WAITING[waiting["reason"]]
        return Fault(reason, f"pod {pod}: {waiting.get('message', waiting['reason'])}: {cure}")
    ended = state.get("terminated")
    if waiting and waiting.get("reason") == "CrashLoopBackOff":
        ended = (container.get("lastState") or {}).get("terminated") or ended
        return ended_fault(pod, container, ended) or Fault(
            Reason.CRASH_LOOP, f"pod {pod} ends again and again: kubectl logs {pod} -p"
        )
    if ended and ended.get("exitCode"):
        return ended_fault(pod, container, ended)
    last = (container.get("lastState") or {}).get("terminated")
    if last and last.get("exitCode") and not container.get("ready") and "running" in state:
        # It runs again, but until it is ready what ended it is the best that is known.
        return ended_fault(pod, container, last)
    return None


def ended_fault(pod: str, container: Object, ended: Any) -> Fault | None:
    """Why a container ended: its own message first, else what the kubelet says."""
    if not ended:
        return None
    own = Termination.read(ended.get("message"))
    times = container.get("restartCount", 0)
    again = f" ({times} {'restart' if times == 1 else 'restarts'})" if times else ""
    # First, since the kernel takes the largest process: the server then only saw its engine end.
    if ended.get("reason") == "OOMKilled":
        return Fault(
            Reason.OOM_KILLED,
            f"pod {pod} used more memory than its limit{again}: raise "
            "spec.template.resources.limits.memory, or lower engine.maxSequences or "
            "engine.contextLength",
        )
    if own is not None and own.reason is not None:
        field = f"; see {FIELDS[own.reason]}" if own.reason in FIELDS else ""
        return Fault(own.reason, f"pod {pod}: {own.message}{again}{field}")
    lines = (ended.get("message") or "").strip().splitlines()
    said = f": {lines[-1][:300]}" if lines else ""
    log = f"kubectl logs {pod} -c {container['name']} -p"
    return Fault(
        Reason.CRASH_LOOP,
        f"pod {pod}: {container['name']} ended with exit code {ended.get('exitCode')}"
        f"{again}{said}: see {log}",
    )
