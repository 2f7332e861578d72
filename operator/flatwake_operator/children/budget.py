"""PodDisruptionBudget: one pod at a time, and a broken pod never blocks a drain.

maxUnavailable rather than minAvailable, so that the only replica of a server can be drained too.
"""

from flatwake_operator import labels
from flatwake_operator.settings import Context, Object


def build(context: Context) -> Object:
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": labels.metadata(context, context.name),
        "spec": {
            "maxUnavailable": 1,
            "unhealthyPodEvictionPolicy": "AlwaysAllow",
            "selector": {"matchLabels": labels.selector(context.name)},
        },
    }
