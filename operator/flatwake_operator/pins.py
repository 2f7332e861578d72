"""The pin: a hash of what a server's pods are made from.

An operator upgrade rolls nothing, since a pin depends on the spec alone: on the fields that differ
from their default, as values and not as they were written (`60s` is `1m`).
"""

import hashlib
import json
import typing
from collections.abc import Iterator, Mapping
from typing import Any

from flatwake_service.manifest import InferenceServer, InferenceServerSpec, nanoseconds, quantity
from flatwake_service.manifest.part import Fragment, Part
from flatwake_service.manifest.scalars import DurationMark, QuantityMark
from pydantic import BaseModel
from pydantic.fields import FieldInfo

LENGTH = 12
"""Hex digits: enough for two revisions of one server."""

ROLLS: dict[str, bool] = {
    "image": True,
    "imagePullSecrets": True,
    "model": True,
    "accelerator": True,
    "replicas": False,
    "autoscaling": False,
    "engine": True,
    "limits": True,
    "startupTimeout": True,
    "rollout": False,
    "access.apiKeysSecret": True,
    "access.corsOrigins": True,
    "access.from": False,
    "access.metricsFrom": False,
    "endpoint": False,
    "template": True,
}
"""Whether a change of a field, or of anything inside it, makes new pods; the longest path wins."""


def rolls(path: str) -> bool:
    """The mark of a field; every field of the spec has one."""
    known = path
    while known and known not in ROLLS:
        known = known.rpartition(".")[0]
    if not known:
        raise KeyError(f"{path} has no mark in ROLLS")
    return ROLLS[known]


def pin(
    server: InferenceServer,
    config: Mapping[str, str | None],
    adopt: str | None,
) -> str:
    """The pin of a server.

    config: the ConfigMap data that the pods read, by `name/key`; None where it is missing.
    adopt: the value of annotation flatwake.dev/adopt; a new one takes the operator's defaults.
    """
    fields = canonical(server.spec)
    if server.spec.model.cache.claim is not None:
        # The size is the volume's, and that grows in place.
        fields.get("model", {}).get("cache", {}).pop("size", None)
    whole: dict[str, Any] = {"name": server.name, "spec": fields}
    if config:
        whole["config"] = dict(config)
    if adopt is not None:
        whole["adopt"] = adopt
    text = json.dumps(whole, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()[:LENGTH]


def canonical(spec: InferenceServerSpec) -> dict[str, Any]:
    """The rolling fields of a spec that differ from their defaults, by value."""
    return _part(spec, "")


def _part(part: Part, prefix: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, info in type(part).model_fields.items():
        alias = info.alias or name
        path = f"{prefix}{alias}"
        value = getattr(part, name)
        if isinstance(value, Part):
            default = info.get_default(call_default_factory=True)
            inner = _part(value, f"{path}.")
            # A part that is absent by default says something by being there, even when empty.
            if inner or not isinstance(default, Part):
                _keep(found, path, alias, inner)
        elif value is not None and not _is_default(value, info):
            _keep(found, path, alias, _value(value, _marks(info)))
    return found


def _keep(found: dict[str, Any], path: str, alias: str, value: Any) -> None:
    marked_inside = any(known.startswith(f"{path}.") for known in ROLLS)
    if value if marked_inside else rolls(path):
        found[alias] = value


def _is_default(value: Any, info: FieldInfo) -> bool:
    if info.is_required():
        return False
    marks = _marks(info)
    default = info.get_default(call_default_factory=True)
    return default is not None and bool(_value(value, marks) == _value(default, marks))


def _value(value: Any, marks: frozenset[type]) -> Any:
    if QuantityMark in marks and isinstance(value, str):
        return f"{quantity(value).normalize():f}"
    if DurationMark in marks and isinstance(value, str):
        return nanoseconds(value)
    if isinstance(value, Part):
        return value.model_dump(mode="json", by_alias=True, exclude_none=True)
    if isinstance(value, Fragment):
        return value.model_dump(mode="json")
    if isinstance(value, tuple):
        return [_value(item, frozenset()) for item in value]
    return value


def _marks(info: FieldInfo) -> frozenset[type]:
    return frozenset(_marks_in(info.annotation, info.metadata))


def _marks_in(annotation: Any, metadata: list[Any]) -> Iterator[type]:
    for mark in metadata:
        if isinstance(mark, (QuantityMark, DurationMark)):
            yield type(mark)
    if hasattr(annotation, "__metadata__"):
        yield from _marks_in(annotation.__origin__, list(annotation.__metadata__))
    for argument in typing.get_args(annotation):
        if not isinstance(argument, type) or not issubclass(argument, BaseModel):
            yield from _marks_in(argument, [])
