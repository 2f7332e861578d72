"""Deployment: the pods, from what a revision has kept."""

from flatwake_service.manifest import Strategy

from flatwake_operator import labels
from flatwake_operator.children import pod
from flatwake_operator.settings import Context, Object

PROGRESS_SECONDS = pod.STARTUP_LIMIT
"""Far above any load that makes progress; the operator's own conditions say what stands still."""


def spec(context: Context, pin: str) -> Object:
    """All of the Deployment's spec but its replicas, which belong to another field manager."""
    template = pod.template(context)
    # A pod says by this which revision it is of.
    template["metadata"].setdefault("annotations", {})[labels.PIN] = pin
    return {
        "selector": {"matchLabels": labels.selector(context.name)},
        "strategy": strategy(context.decision.strategy),
        "revisionHistoryLimit": 2,
        "progressDeadlineSeconds": PROGRESS_SECONDS,
        "template": template,
    }


def strategy(chosen: Strategy) -> Object:
    """Surge starts the new pod first; Replace ends the old one first, to free its device."""
    surge = chosen is Strategy.SURGE
    return {
        "type": "RollingUpdate",
        "rollingUpdate": {"maxSurge": int(surge), "maxUnavailable": int(not surge)},
    }


def build(context: Context, pin: str, kept: Object, paused: bool = False) -> Object:
    """The Deployment with a kept spec; paused while it must not start pods yet."""
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": labels.metadata(context, context.name, {labels.PIN: pin}),
        "spec": kept | ({"paused": True} if paused else {}),
    }


def replicas(context: Context) -> Object:
    """What the field manager of the scale owns."""
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": context.name, "namespace": context.namespace},
        "spec": {"replicas": context.server.spec.replicas},
    }
