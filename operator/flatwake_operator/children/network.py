"""NetworkPolicy: who may reach the pods, where `access.from` says so."""

from flatwake_service.manifest import defaults

from flatwake_operator import labels
from flatwake_operator.settings import Context, Object


def build(context: Context) -> Object | None:
    access = context.server.spec.access
    if access.from_ is None:
        return None
    ports = [{"protocol": "TCP", "port": defaults.SERVE_PORT}]
    peers = [peer.model_dump() for peer in (*access.from_, *(access.metrics_from or ()))]
    # The operator asks pods for their /status.
    operator = {
        "namespaceSelector": {
            "matchLabels": {"kubernetes.io/metadata.name": context.settings.namespace}
        },
        "podSelector": {"matchLabels": dict(context.settings.labels)},
    }
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": labels.metadata(context, context.name),
        "spec": {
            "podSelector": {"matchLabels": labels.selector(context.name)},
            "policyTypes": ["Ingress"],
            "ingress": [{"from": [*peers, operator], "ports": ports}],
        },
    }
