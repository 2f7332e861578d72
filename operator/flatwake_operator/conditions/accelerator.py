"""AcceleratorReady: what the pods of the present template run on."""

from flatwake_service.manifest import Backend, Reason

from flatwake_operator.conditions.facts import Condition, Facts, living, waits_for, why_none
from flatwake_operator.pods import Pod

DEVICE_REASONS = {
    Reason.DEVICE_NODE_MISSING, Reason.DEVICE_ACCESS_DENIED, Reason.RUNTIME_MISSING,
    Reason.NO_DEVICE, Reason.ARCHITECTURE_UNSUPPORTED, Reason.DEVICE_MEMORY_SHORT,
    Reason.LIBRARY_UNUSABLE, Reason.DEVICE_HUNG, Reason.DEVICE_FAULT, Reason.DEVICE_UNHEALTHY,
    Reason.DEVICES_SHORT,
}  # fmt: skip
"""Reasons of pods on devices that are AcceleratorReady's; all others are ModelReady's."""


def decide(facts: Facts) -> Condition:
    """From the pods' own words, their faults and the devices of nodes that fit."""

    def condition(status: str, reason: Reason, message: str) -> Condition:
        return Condition("AcceleratorReady", status, reason, message)

    if facts.decision is None:
        return condition("Unknown", Reason.UNKNOWN, "nothing is decided yet: see Accepted")
    if facts.decision.backend is Backend.CPU:
        return condition("True", Reason.NOT_NEEDED, f"backend Cpu{facts.why_backend}")
    current = living(facts.pods)
    leaving = [pod for pod in facts.pods if pod.terminating]
    for pod in current:
        if pod.unschedulable_since and leaving:
            return condition("Unknown", Reason.WAITING_FOR_DEVICE, waits_for(pod, leaving[0]))
        short = _shortage(pod, facts)
        if short is not None:
            return condition("False", Reason.DEVICES_SHORT, short)
        if pod.fault and pod.fault.reason in DEVICE_REASONS:
            return condition("False", pod.fault.reason, pod.fault.message)
    unhealthy = _unhealthy(facts)
    found = [pod.report.device for pod in current if pod.report and pod.report.device.architecture]
    if len(found) == len(current) and found:
        text = f"{found[0].name or 'device'} ({found[0].architecture}){facts.why_backend}"
        if unhealthy:
            # Pods that run keep their device, so a broken one elsewhere doesn't end readiness.
            return condition("True", Reason.DEVICE_UNHEALTHY, f"{text}; {unhealthy}")
        return condition("True", Reason.DEVICE_FOUND, text)
    if unhealthy:
        return condition("False", Reason.DEVICE_UNHEALTHY, unhealthy)
    if not current and facts.desired == 0:
        return condition("Unknown", Reason.SCALED_TO_ZERO, why_none(facts))
    return condition("Unknown", Reason.STARTING, "no pod has looked at its device yet")


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
    waiting = [p for p in living(facts.pods) if p.unschedulable_since is not None]
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
