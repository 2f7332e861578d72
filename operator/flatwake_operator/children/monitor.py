"""PodMonitor of the Prometheus operator, where its API exists."""

from flatwake_operator import labels
from flatwake_operator.settings import Context, Object


def build(context: Context) -> Object:
    return {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "PodMonitor",
        "metadata": labels.metadata(context, context.name),
        "spec": {
            "selector": {"matchLabels": labels.selector(context.name)},
            "podMetricsEndpoints": [{"port": "http", "path": "/metrics", "interval": "15s"}],
        },
    }
