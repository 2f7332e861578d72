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
from datetime import datetime

from flatwake_service.manifest import Reason

from flatwake_operator.conditions import accelerator, model, progressing
from flatwake_operator.conditions.accelerator import DEVICE_REASONS
from flatwake_operator.conditions.facts import Condition, Facts, why_none
from flatwake_operator.conditions.model import PHASE_REASONS, percent
from flatwake_operator.settings import Object

__all__ = [
    "DEVICE_REASONS",
    "PHASE_REASONS",
    "Condition",
    "Facts",
    "decide",
    "percent",
    "written",
]


def decide(facts: Facts, before: Sequence[Object] = ()) -> list[Condition]:
    """All conditions, in the order in which they depend on each other; `before` are the last."""
    parts = [
        _accepted(facts),
        accelerator.decide(facts),
        model.decide(facts, before),
        progressing.decide(facts),
    ]
    return [*parts, _ready(facts, parts)]


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


def _accepted(facts: Facts) -> Condition:
    if facts.refusal:
        return Condition("Accepted", "False", facts.refusal.reason, facts.refusal.message)
    if facts.trouble:
        return Condition("Accepted", "Unknown", facts.trouble.reason, facts.trouble.message)
    if facts.missing_api:
        return Condition("Accepted", "True", Reason.API_MISSING, facts.missing_api + facts.note)
    text = "the spec is understood and its objects are in place"
    return Condition("Accepted", "True", Reason.ACCEPTED, text + facts.note)


def _ready(facts: Facts, parts: list[Condition]) -> Condition:
    accepted, *needed, moving = parts

    def condition(status: str, reason: Reason, message: str) -> Condition:
        return Condition("Ready", status, reason, message)

    if accepted.status != "True":
        return condition("False", accepted.reason, accepted.message)
    if facts.desired == 0:
        return condition("False", Reason.SCALED_TO_ZERO, why_none(facts))
    for part in needed:
        if part.status != "True":
            return condition("False", part.reason, part.message + _meanwhile(facts))
    if facts.deployment is None or not progressing.is_settled(facts):
        return condition("False", moving.reason, moving.message)
    who = f"all {facts.desired} pods answer" if facts.desired > 1 else "the pod answers"
    return condition("True", Reason.SERVING, f"{who} requests")


def _meanwhile(facts: Facts) -> str:
    old = sum(pod.ready and not pod.current and not pod.terminating for pod in facts.pods)
    return f"; pods of the earlier template that still answer: {old}" if old else ""
