"""Every condition of an InferenceServer, decided here alone, from facts and without a cluster.

Accepted          the operator can do what the spec asks for; else which field to change.
AcceleratorReady  the pods of the present template have what they run on.
ModelReady        they have the model: fetched, verified, loaded.
Progressing       pods are being replaced or started; says by which version and how.
Ready             all of the above, and as many pods as wanted have answered a real token.

A part that is missing or Unknown is never Ready. Each names the generation of the InferenceServer
that it is about.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from flatwake_service.manifest import Backend, Phase, Reason, ServerStatus, Strategy

from flatwake_operator.devices import Devices
from flatwake_operator.pods import Fault, Pod
from flatwake_operator.settings import Decision, Object

DEVICE_REASONS = {
    Reason.DEVICE_NODE_MISSING, Reason.DEVICE_ACCESS_DENIED, Reason.RUNTIME_MISSING,
    Reason.NO_DEVICE, Reason.ARCHITECTURE_UNSUPPORTED, Reason.DEVICE_MEMORY_SHORT,
    Reason.LIBRARY_UNUSABLE, Reason.DEVICE_HUNG, Reason.DEVICE_FAULT, Reason.DEVICE_UNHEALTHY,
    Reason.DEVICES_SHORT,
}  # fmt: skip
"""Reasons of pods on devices that are AcceleratorReady's; all others are ModelReady's."""

PHASE_REASONS = {
    Phase.PREFLIGHT: Reason.STARTING,
    Phase.FETCHING: Reason.FETCHING,
    Phase.LOADING: Reason.LOADING,
    Phase.WARMING: Reason.WARMING,
    Phase.DRAINING: Reason.DRAINING,
}
PHASE_WORDS = {
    Phase.PREFLIGHT: "looking at its device",
    Phase.FETCHING: "fetching",
    Phase.LOADING: "loading",
    Phase.WARMING: "warming up",
    Phase.DRAINING: "draining",
}
CURES = {
    Reason.KEYS_MISSING: ": create the Secret that spec.access.apiKeysSecret names, or correct it; "
    "it takes effect within two minutes and rolls nothing",
}
"""What a pod can't know: where its files come from."""
SILENT = "hasn't said anything yet"
PERCENT_STEP = 5
"""Progress is written in steps, so that a slow download costs twenty writes and not thousands."""


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


def decide(facts: Facts, before: Sequence[Object] = ()) -> list[Condition]:
    """All conditions, in the order in which they depend on each other; `before` are the last."""
    model = _still_fetching(_model(facts), before)
    parts = [_accepted(facts), _accelerator(facts), model, _progressing(facts)]
    return [*parts, _ready(facts, parts)]


def _still_fetching(model: Condition, before: Sequence[Object]) -> Condition:
    """A pod that said how far its download is stays at that until more is known: between its own
    last word and the kubelet's on its end, it can't be heard.
    """
    if not model.message.endswith(SILENT):
        return model
    for held in before:
        fetched = held["type"] == model.type and held["reason"] == Reason.FETCHING.value
        if fetched and held["message"].split()[:2] == model.message.split()[:2]:
            return replace(model, reason=Reason.FETCHING, message=held["message"])
    return model


def written(
    decided: list[Condition], generation: int, before: list[Object], now: datetime
) -> list[Object]:
    """Conditions as the status has them; the time changes only with the status."""
    old = {condition["type"]: condition for condition in before}
    stamp = now.strftime("%Y-%m-%dT%H:%M:%SZ")
    made = []
    for condition in decided:
        held = old.get(condition.type)
        same = held is not None and held["status"] == condition.status
        made.append(
            {
                "type": condition.type,
                "status": condition.status,
                "reason": condition.reason.value,
                "message": condition.message[:32768],
                "observedGeneration": generation,
                "lastTransitionTime": held["lastTransitionTime"] if held and same else stamp,
            }
        )
    return made


def percent(pods: tuple[Pod, ...]) -> int | None:
    """How far the pod that is furthest behind has come, in steps; None if none says."""
    found = [share for pod in _living(pods) if (share := _share(pod)) is not None]
    return min(found, default=None)


def _share(pod: Pod) -> int | None:
    if pod.ready:
        return 100
    if pod.report is None or not pod.report.model.bytes_total:
        return None
    share = 100 * (pod.report.model.bytes_done or 0) // pod.report.model.bytes_total
    return min(99, share - share % PERCENT_STEP)


def _living(pods: tuple[Pod, ...]) -> list[Pod]:
    return [pod for pod in pods if pod.current and not pod.terminating]


def _accepted(facts: Facts) -> Condition:
    if facts.refusal:
        return Condition("Accepted", "False", facts.refusal.reason, facts.refusal.message)
    if facts.trouble:
        return Condition("Accepted", "Unknown", facts.trouble.reason, facts.trouble.message)
    if facts.missing_api:
        return Condition("Accepted", "True", Reason.API_MISSING, facts.missing_api + facts.note)
    text = "the spec is understood and its objects are in place"
    return Condition("Accepted", "True", Reason.ACCEPTED, text + facts.note)


def _accelerator(facts: Facts) -> Condition:
    def condition(status: str, reason: Reason, message: str) -> Condition:
        return Condition("AcceleratorReady", status, reason, message)

    if facts.decision is None:
        return condition("Unknown", Reason.UNKNOWN, "nothing is decided yet: see Accepted")
    if facts.decision.backend is Backend.CPU:
        return condition("True", Reason.NOT_NEEDED, f"backend Cpu{facts.why_backend}")
    living = _living(facts.pods)
    leaving = [pod for pod in facts.pods if pod.terminating]
    for pod in living:
        if pod.unschedulable_since and leaving:
            return condition("Unknown", Reason.WAITING_FOR_DEVICE, _waits_for(pod, leaving[0]))
        short = _shortage(pod, facts)
        if short is not None:
            return condition("False", Reason.DEVICES_SHORT, short)
        if pod.fault and pod.fault.reason in DEVICE_REASONS:
            return condition("False", pod.fault.reason, pod.fault.message)
    unhealthy = _unhealthy(facts)
    found = [pod.report.device for pod in living if pod.report and pod.report.device.architecture]
    if len(found) == len(living) and found:
        text = f"{found[0].name or 'device'} ({found[0].architecture}){facts.why_backend}"
        if unhealthy:
            # Pods that run keep their device, so a broken one elsewhere doesn't end readiness.
            return condition("True", Reason.DEVICE_UNHEALTHY, f"{text}; {unhealthy}")
        return condition("True", Reason.DEVICE_FOUND, text)
    if unhealthy:
        return condition("False", Reason.DEVICE_UNHEALTHY, unhealthy)
    if not living and facts.desired == 0:
        return condition("Unknown", Reason.SCALED_TO_ZERO, _why_none(facts))
    return condition("Unknown", Reason.STARTING, "no pod has looked at its device yet")


def _why_none(facts: Facts) -> str:
    if facts.autoscaler is None:
        return "no pod is wanted: raise replicas"
    name = facts.autoscaler["metadata"]["name"]
    return (
        "there is no pod, and an autoscaler never makes the first one: "
        f"kubectl scale deployment {name} --replicas=1"
    )


def _waits_for(pod: Pod, leaving: Pod) -> str:
    return f"pod {pod.name} waits for the device of pod {leaving.name}, which drains"


def _shortage(pod: Pod, facts: Facts) -> str | None:
    """needed and free, where the scheduler lacks the device and nothing else."""
    if pod.fault is None or pod.fault.reason is not Reason.UNSCHEDULABLE:
        return None
    devices = facts.devices
    if devices is None:
        words = (f"Insufficient {facts.resource}", "cannot allocate all claims")
        lacking = any(each in pod.fault.message for each in words)
        cure = "free a device, add a node, or change spec.accelerator"
        return f"{pod.fault.message}: {cure}" if lacking else None
    if devices.total_free > 0:
        return None
    waiting = [p for p in _living(facts.pods) if p.unschedulable_since is not None]
    return (
        f"{facts.resource}: {len(waiting)} needed, {devices.total_free} free of "
        f"{devices.allocatable} on nodes that fit: free a device, add a node, or change "
        "spec.accelerator or spec.template.nodeSelector"
    )


def _unhealthy(facts: Facts) -> str | None:
    devices = facts.devices
    if devices is None or devices.capacity <= devices.allocatable:
        return None
    broken = devices.capacity - devices.allocatable
    return (
        f"{broken} of {devices.capacity} {facts.resource} unhealthy on nodes that fit: "
        "see the device plugin's log and the node"
    )


def _model(facts: Facts) -> Condition:
    def condition(status: str, reason: Reason, message: str) -> Condition:
        return Condition("ModelReady", status, reason, message)

    if facts.drift:
        return condition("False", facts.drift.reason, facts.drift.message)
    living = _living(facts.pods)
    on_device = facts.decision is not None and facts.decision.backend is Backend.HIP
    for pod in living:
        told_there = on_device and pod.fault and pod.fault.reason in DEVICE_REASONS
        if pod.fault and not told_there and not pod.ready:
            status = "Unknown" if pod.fault.reason is Reason.UNSCHEDULABLE else "False"
            return condition(status, pod.fault.reason, pod.fault.message + _since(pod))
    if not living:
        if facts.desired == 0:
            return condition("Unknown", Reason.SCALED_TO_ZERO, _why_none(facts))
        return condition("Unknown", Reason.STARTING, "no pod of the present template exists yet")
    behind = [pod for pod in living if not pod.ready]
    if not behind:
        return _loaded(living[0], condition("True", Reason.SERVING, "the model is loaded"))
    pod = behind[0]
    if pod.report is None or pod.report.phase is None:
        if pod.fetched:
            return condition("False", Reason.LOADING, f"pod {pod.name} starts its server")
        return condition("False", Reason.STARTING, f"pod {pod.name} {SILENT}")
    if pod.report.phase is Phase.READY and pod.report.reason in (None, Reason.SERVING):
        return condition("False", Reason.WARMING, f"pod {pod.name} answers; its probe follows")
    if pod.report.phase in (Phase.READY, Phase.FAILED) or pod.report.reason is Reason.KEYS_MISSING:
        reason = pod.report.reason or Reason.STARTING
        text = pod.report.message or f"pod {pod.name} isn't ready"
        return condition("False", reason, text + CURES.get(reason, ""))
    reason, share = PHASE_REASONS[pod.report.phase], percent(tuple(behind))
    return condition("False", reason, f"pod {pod.name} is {_progress(pod.report, share)}")


def _progress(report: ServerStatus, share: int | None) -> str:
    assert report.phase is not None
    so_far = f" {share} %" if share is not None else ""
    total = report.model.bytes_total
    of = f" of {total / 1e9:.1f} GB" if total else ""
    return f"{PHASE_WORDS[report.phase]}{so_far}{of}"


def _since(pod: Pod) -> str:
    """What a pod that failed does meanwhile: a long download may follow a short fault."""
    if pod.report is None or pod.report.phase not in PHASE_REASONS:
        return ""
    return f"; it runs again and is {_progress(pod.report, _share(pod))}"


def _loaded(pod: Pod, plain: Condition) -> Condition:
    if pod.report is None:
        return plain
    reason = pod.report.reason if pod.report.reason is Reason.CONTEXT_REDUCED else plain.reason
    named = pod.report.model.name or "the model"
    digest = f", {pod.report.model.digest}" if pod.report.model.digest else ""
    more = f": {pod.report.message}" if reason is Reason.CONTEXT_REDUCED else ""
    return Condition("ModelReady", "True", reason, f"{named} is loaded{digest}{more}")


def _progressing(facts: Facts) -> Condition:
    def condition(status: str, reason: Reason, message: str) -> Condition:
        return Condition("Progressing", status, reason, message)

    if facts.deployment is None or facts.decision is None:
        return condition("Unknown", Reason.UNKNOWN, "there is no Deployment yet: see Accepted")
    how = {Strategy.SURGE: "new pods start first", Strategy.REPLACE: "old pods end first"}
    way = f"{facts.decision.strategy}: {how[facts.decision.strategy]}{facts.why_strategy}"
    by = f"rendered by version {facts.version}; {way}"
    if facts.autoscaler is not None and (failure := _autoscaler_fault(facts.autoscaler)):
        return condition("True", Reason.AUTOSCALER_FAILED, failure)
    if _is_settled(facts):
        all_of_them = f"all {facts.desired} pods are" if facts.desired > 1 else "the pod is"
        now = f"{all_of_them} of this template" if facts.desired else "no pod is wanted"
        return condition("False", Reason.UP_TO_DATE, f"{now}; {by}")
    waiting = [pod for pod in _living(facts.pods) if pod.unschedulable_since]
    leaving = [pod for pod in facts.pods if pod.terminating]
    if waiting and leaving:
        text = _waits_for(waiting[0], leaving[0])
        return condition("True", Reason.WAITING_FOR_DEVICE, f"{text}; {by}")
    if waiting:
        fault = waiting[0].fault
        text = fault.message if fault else f"pod {waiting[0].name} has no node"
        return condition("True", Reason.UNSCHEDULABLE, f"{text}; {by}")
    status = facts.deployment.get("status") or {}
    updated, up = (status.get(f"{which}Replicas", 0) for which in ("updated", "available"))
    pods = "pod is" if facts.desired == 1 else "pods are"
    now = f"{updated} of {facts.desired} {pods} of this template, {up} available"
    old = [pod for pod in facts.pods if not pod.current and not pod.terminating]
    reason = Reason.ROLLING_OUT if old else Reason.STARTING
    return condition("True", reason, f"{now}; {by}")


def _autoscaler_fault(autoscaler: Object) -> str | None:
    for condition in (autoscaler.get("status") or {}).get("conditions") or []:
        if condition["type"] in ("AbleToScale", "ScalingActive") and condition["status"] == "False":
            disabled = condition.get("reason") == "ScalingDisabled"
            return None if disabled else f"the autoscaler: {condition.get('message', '')}"
    return None


def _is_settled(facts: Facts) -> bool:
    """Whether the Deployment has seen its newest spec and all its pods are new and available."""
    assert facts.deployment is not None
    meta, status = facts.deployment["metadata"], facts.deployment.get("status") or {}
    counts = ("replicas", "updatedReplicas", "availableReplicas")
    return (
        status.get("observedGeneration", 0) >= meta.get("generation", 0)
        and all(status.get(count, 0) == facts.desired for count in counts)
        and not facts.deployment["spec"].get("paused")
    )


def _meanwhile(facts: Facts) -> str:
    old = sum(pod.ready and not pod.current and not pod.terminating for pod in facts.pods)
    return f"; pods of the earlier template that still answer: {old}" if old else ""


def _ready(facts: Facts, parts: list[Condition]) -> Condition:
    accepted, accelerator, model, progressing = parts

    def condition(status: str, reason: Reason, message: str) -> Condition:
        return Condition("Ready", status, reason, message)

    if accepted.status != "True":
        return condition("False", accepted.reason, accepted.message)
    if facts.desired == 0:
        return condition("False", Reason.SCALED_TO_ZERO, _why_none(facts))
    for part in (accelerator, model):
        if part.status != "True":
            return condition("False", part.reason, part.message + _meanwhile(facts))
    if facts.deployment is None or not _is_settled(facts):
        return condition("False", progressing.reason, progressing.message)
    who = f"all {facts.desired} pods answer" if facts.desired > 1 else "the pod answers"
    return condition("True", Reason.SERVING, f"{who} requests")
