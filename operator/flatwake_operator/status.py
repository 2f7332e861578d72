"""The status of an InferenceServer; all of it can be found again from the cluster."""

from datetime import datetime
from typing import Any

from flatwake_service.manifest import InferenceServer

from flatwake_operator import conditions, labels
from flatwake_operator.children import service
from flatwake_operator.conditions import Condition, Facts
from flatwake_operator.plan import Plan
from flatwake_operator.settings import Object


def build(
    facts: Facts,
    server: InferenceServer | None,
    plan: Plan | None,
    decided: list[Condition],
    before: Object,
    now: datetime,
) -> Object:
    """The whole status; what isn't known is left out."""
    counts = (facts.deployment or {}).get("status") or {}
    status: Object = {
        "observedGeneration": facts.generation,
        "conditions": conditions.written(
            decided, facts.generation, before.get("conditions") or [], now
        ),
        "replicas": counts.get("replicas", 0),
        "readyReplicas": counts.get("readyReplicas", 0),
        "updatedReplicas": counts.get("updatedReplicas", 0),
    }
    if server is None:
        return {**before, **status}
    status["selector"] = f"{labels.SERVER}={server.name}"
    if plan is not None:
        status["endpoint"] = service.address(plan.context)
    elif before.get("endpoint"):
        status["endpoint"] = before["endpoint"]
    if facts.decision is not None:
        status["image"] = facts.decision.image
        status["accelerator"] = _accelerator(facts)
    status["model"] = _model(facts, server)
    return status


def _accelerator(facts: Facts) -> Object:
    assert facts.decision is not None
    found: dict[str, Any] = {"backend": facts.decision.backend.value}
    for pod in facts.pods:
        if pod.current and pod.report and pod.report.device.architecture:
            found["architecture"] = pod.report.device.architecture
            found["device"] = pod.report.device.name
            break
    return _known(found)


def _model(facts: Facts, server: InferenceServer) -> Object:
    found: dict[str, Any] = {"name": server.served_name, "percent": conditions.percent(facts.pods)}
    for pod in facts.pods:
        if pod.current and pod.report and pod.report.model.digest:
            model = pod.report.model
            found |= {
                "bytes": model.bytes_total,
                "digest": model.digest,
                "revision": model.revision,
            }
            break
    return _known(found)


def _known(found: dict[str, Any]) -> Object:
    return {key: value for key, value in found.items() if value is not None}
