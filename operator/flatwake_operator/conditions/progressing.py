"""Progressing: which pods are being replaced or started, by which version and how."""

from flatwake_service.manifest import Reason, Strategy

from flatwake_operator.conditions.facts import Condition, Facts, living, waits_for
from flatwake_operator.settings import Object


def decide(facts: Facts) -> Condition:
    """False once the Deployment has nothing left to do."""

    def condition(status: str, reason: Reason, message: str) -> Condition:
        return Condition("Progressing", status, reason, message)

    if facts.deployment is None or facts.decision is None:
        return condition("Unknown", Reason.UNKNOWN, "there is no Deployment yet: see Accepted")
    how = {Strategy.SURGE: "new pods start first", Strategy.REPLACE: "old pods end first"}
    way = f"{facts.decision.strategy}: {how[facts.decision.strategy]}{facts.why_strategy}"
    by = f"rendered by version {facts.version}; {way}"
    if facts.autoscaler is not None and (failure := _autoscaler_fault(facts.autoscaler)):
        return condition("True", Reason.AUTOSCALER_FAILED, failure)
    if is_settled(facts):
        all_of_them = f"all {facts.desired} pods are" if facts.desired > 1 else "the pod is"
        now = f"{all_of_them} of this template" if facts.desired else "no pod is wanted"
        return condition("False", Reason.UP_TO_DATE, f"{now}; {by}")
    waiting = [pod for pod in living(facts.pods) if pod.unschedulable_since]
    leaving = [pod for pod in facts.pods if pod.terminating]
    if waiting and leaving:
        text = waits_for(waiting[0], leaving[0])
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


def is_settled(facts: Facts) -> bool:
    """Whether the Deployment has seen its newest spec and all its pods are new and available."""
    assert facts.deployment is not None
    meta, status = facts.deployment["metadata"], facts.deployment.get("status") or {}
    counts = ("replicas", "updatedReplicas", "availableReplicas")
    return (
        status.get("observedGeneration", 0) >= meta.get("generation", 0)
        and all(status.get(count, 0) == facts.desired for count in counts)
        and not facts.deployment["spec"].get("paused")
    )
