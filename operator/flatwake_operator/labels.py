"""Labels, annotations and references that tie children to their InferenceServer."""

from typing import Final

from flatwake_service.manifest import API_VERSION, KIND, InferenceServer

from flatwake_operator.settings import Context, Object

SERVER: Final = "flatwake.dev/server"
"""The label of all children and pods; its value is the server's name. Selectors hold it alone, so
that nothing which may change is ever in one."""
PIN: Final = "flatwake.dev/pin"
ADOPT: Final = "flatwake.dev/adopt"
APPLIED: Final = "flatwake.dev/applied"
STRATEGY: Final = "flatwake.dev/strategy"
WHY_BACKEND: Final = "flatwake.dev/why-backend"
WHY_STRATEGY: Final = "flatwake.dev/why-strategy"
DRIFTED: Final = "flatwake.dev/drifted"


def selector(name: str) -> dict[str, str]:
    return {SERVER: name}


def labels(name: str) -> dict[str, str]:
    """A child's labels: no versions in them, since an upgrade must change nothing."""
    return {
        SERVER: name,
        "app.kubernetes.io/name": "flatwake",
        "app.kubernetes.io/instance": name,
        "app.kubernetes.io/managed-by": "flatwake",
    }


def owner(server: InferenceServer) -> Object:
    """The reference by which Kubernetes deletes a child after its server."""
    return {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "name": server.name,
        "uid": server.metadata.uid,
        "controller": True,
    }


def metadata(context: Context, name: str, annotations: dict[str, str] | None = None) -> Object:
    """A child's metadata; what is rendered without a cluster has no owner there."""
    made: Object = {
        "name": name,
        "namespace": context.namespace,
        "labels": labels(context.name),
    }
    if context.server.metadata.uid:
        made["ownerReferences"] = [owner(context.server)]
    return made | ({"annotations": dict(annotations)} if annotations else {})


def is_owned(child: Object, uid: str) -> bool:
    """Whether a server with this uid is the child's controller."""
    references = child["metadata"].get("ownerReferences") or []
    return any(r.get("controller") and r.get("uid") == uid for r in references)
