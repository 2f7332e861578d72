"""InferencePool of the Gateway API inference extension, where its API exists."""

from flatwake_service.manifest import defaults

from flatwake_operator import labels
from flatwake_operator.settings import Context, Object


def build(context: Context) -> Object | None:
    picker = context.server.spec.endpoint.picker_ref
    if picker is None:
        return None
    return {
        "apiVersion": "inference.networking.k8s.io/v1",
        "kind": "InferencePool",
        "metadata": labels.metadata(context, context.name),
        "spec": {
            "selector": {"matchLabels": labels.selector(context.name)},
            "targetPorts": [{"number": defaults.SERVE_PORT}],
            "endpointPickerRef": {"name": picker.name, "port": {"number": picker.port}},
        },
    }
