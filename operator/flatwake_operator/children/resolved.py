"""ConfigMap NAME-model: what the first pod's source resolved to, so that all pods have the same."""

from flatwake_operator import labels
from flatwake_operator.settings import Context, Object


def build(context: Context, revision: str | None, digest: str, drifted: str | None) -> Object:
    """drifted: the uid of a pod that had another digest, and was deleted for it."""
    data = {"source": context.server.spec.model.source, "digest": digest}
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": labels.metadata(
            context, context.part("model"), {labels.DRIFTED: drifted} if drifted else None
        ),
        "data": data | ({"revision": revision} if revision else {}),
    }
