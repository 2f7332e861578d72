"""PersistentVolumeClaim: the model files, kept between pods."""

from flatwake_service.manifest import Scheme, parse_source

from flatwake_operator import labels
from flatwake_operator.settings import Context, Object


def claim_name(context: Context) -> str | None:
    """The claim that the pods mount for their model, if there is one."""
    model = context.server.spec.model
    source = parse_source(model.source)
    if source.scheme is Scheme.PVC:
        return source.place
    if model.cache.claim is None:
        return None
    return model.cache.claim.name or context.part("cache")


def build(context: Context) -> Object | None:
    cache = context.server.spec.model.cache
    if cache.claim is None or cache.claim.name:
        return None
    spec: Object = {
        "accessModes": [mode.value for mode in cache.claim.access_modes],
        "resources": {"requests": {"storage": cache.size}},
    }
    if cache.claim.storage_class_name:
        spec["storageClassName"] = cache.claim.storage_class_name
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": labels.metadata(context, context.part("cache")),
        "spec": spec,
    }
