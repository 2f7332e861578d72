"""Whether an object in the cluster still has everything that is wanted of it.

The API server fills in defaults and other managers add their own, so what is wanted must be in
what is there, and no more is asked. List items meet by the key that server-side apply merges by.
"""

import hashlib
import json
from typing import Any

from flatwake_service.manifest import quantity

from flatwake_operator import labels
from flatwake_operator.settings import Object

MERGE_KEYS: dict[str, tuple[str, ...]] = {
    "containers": ("name",),
    "initContainers": ("name",),
    "env": ("name",),
    "volumes": ("name",),
    "volumeMounts": ("mountPath",),
    "imagePullSecrets": ("name",),
    "ownerReferences": ("uid",),
    "claims": ("name",),
    "resourceClaims": ("name",),
    "topologySpreadConstraints": ("topologyKey",),
    "ports": ("containerPort", "port"),
}
QUANTITIES = {"requests", "limits", "sizeLimit", "averageValue", "storage"}


def fingerprint(wanted: Object) -> str:
    """A hash of what is applied: a field that is no longer wanted shows here alone."""
    text = json.dumps(wanted, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def stamped(wanted: Object) -> Object:
    """The object with its own fingerprint as an annotation."""
    meta = wanted["metadata"]
    annotations = {**meta.get("annotations", {}), labels.APPLIED: fingerprint(wanted)}
    return {**wanted, "metadata": {**meta, "annotations": annotations}}


def differences(wanted: Any, found: Any, path: str = "", quantities: bool = False) -> list[str]:
    """Paths at which what is wanted isn't there; empty when everything is."""
    if isinstance(wanted, dict):
        if not isinstance(found, dict):
            return [] if not wanted and found is None else [path]
        faults = []
        for key, value in wanted.items():
            inside = quantities or key in QUANTITIES
            faults += differences(value, found.get(key), f"{path}.{key}", inside)
        return faults
    if isinstance(wanted, list):
        return _list_differences(wanted, found, path, quantities)
    if wanted == found or (quantities and _same_quantity(wanted, found)):
        return []
    return [] if wanted is None and found is None else [path]


def _list_differences(wanted: list[Any], found: Any, path: str, quantities: bool) -> list[str]:
    if not isinstance(found, list):
        return [] if not wanted and found is None else [path]
    keys = MERGE_KEYS.get(path.rpartition(".")[2])
    if keys is None:
        if len(wanted) != len(found):
            return [path]
        pairs = list(zip(wanted, found, strict=True))
    else:
        by_key = {_merge_key(item, keys): item for item in found}
        pairs = [(item, by_key.get(_merge_key(item, keys))) for item in wanted]
    return [
        fault
        for number, (left, right) in enumerate(pairs)
        for fault in differences(left, right, f"{path}[{number}]", quantities)
    ]


def _merge_key(item: Any, keys: tuple[str, ...]) -> Any:
    return next((item[key] for key in keys if isinstance(item, dict) and key in item), None)


def _same_quantity(left: Any, right: Any) -> bool:
    try:
        return quantity(str(left)) == quantity(str(right))
    except ValueError:
        return False
