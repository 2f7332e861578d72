"""HorizontalPodAutoscaler on the Deployment, by requests in flight or by CPU."""

from flatwake_service.manifest import Metric, defaults

from flatwake_operator import labels
from flatwake_operator.settings import Context, Object

IN_FLIGHT = "flatwake_requests_in_flight"
SCALE_DOWN_SECONDS = 300
"""A pod that goes away takes its warm model along, so scaling down waits."""


def build(context: Context) -> Object | None:
    spec = context.server.spec
    if spec.autoscaling is None:
        return None
    return {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": labels.metadata(context, context.name),
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": context.name},
            "minReplicas": spec.autoscaling.min_replicas,
            "maxReplicas": spec.autoscaling.max_replicas,
            "metrics": [_metric(context)],
            "behavior": {"scaleDown": {"stabilizationWindowSeconds": SCALE_DOWN_SECONDS}},
        },
    }


def _metric(context: Context) -> Object:
    spec = context.server.spec
    assert spec.autoscaling is not None
    target = spec.autoscaling.target
    if spec.autoscaling.metric is Metric.CPU:
        wanted = target or defaults.CPU_TARGET_PERCENT
        return {
            "type": "Resource",
            "resource": {
                "name": "cpu",
                "target": {"type": "Utilization", "averageUtilization": wanted},
            },
        }
    milli = (
        target * 1000
        if target
        else round(defaults.QUEUE_TARGET_SHARE * 1000 * spec.engine.max_sequences)
    )
    value = str(milli // 1000) if milli % 1000 == 0 else f"{milli}m"
    return {
        "type": "Pods",
        "pods": {
            "metric": {"name": IN_FLIGHT},
            "target": {"type": "AverageValue", "averageValue": value},
        },
    }
