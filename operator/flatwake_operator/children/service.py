"""Service: one name and port before the pods."""

from flatwake_operator import labels
from flatwake_operator.settings import Context, Object


def build(context: Context) -> Object:
    endpoint = context.server.spec.endpoint
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": labels.metadata(context, context.name, endpoint.annotations),
        "spec": {
            "type": endpoint.type.value,
            # An address of each family that the cluster has; a cluster of one family gives one.
            "ipFamilyPolicy": "PreferDualStack",
            "selector": labels.selector(context.name),
            "ports": [
                {
                    "name": "http",
                    "port": endpoint.port,
                    "targetPort": "http",
                    "protocol": "TCP",
                    "appProtocol": "http",
                }
            ],
        },
    }


def address(context: Context) -> str:
    """Where clients inside the cluster send requests."""
    port = context.server.spec.endpoint.port
    return f"http://{context.name}.{context.namespace}.svc:{port}/v1"
