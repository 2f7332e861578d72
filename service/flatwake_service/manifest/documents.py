"""A manifest file: one InferenceServer and the ConfigMaps and Secrets beside it."""

import base64
import difflib
import types
import typing
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, ValidationError

from flatwake_service.manifest.errors import ManifestError
from flatwake_service.manifest.spec import API_VERSION, KIND, InferenceServer

Keys = Mapping[str, bytes]


@dataclass(frozen=True)
class Documents:
    """What one file holds. Values of ConfigMaps and Secrets are bytes by key, decoded."""

    server: InferenceServer
    config_maps: Mapping[str, Keys] = field(default_factory=dict)
    secrets: Mapping[str, Keys] = field(default_factory=dict)
    path: Path | None = None


def load(path: Path | str) -> Documents:
    """Reads a file; raises ManifestError with the file, the field and the cure."""
    place = Path(path)
    try:
        text = place.read_text(encoding="utf-8")
    except OSError as error:
        raise ManifestError(f"can't be read: {error.strerror}", file=place) from error
    except UnicodeDecodeError as error:
        raise ManifestError("isn't UTF-8 text: save it as UTF-8", file=place) from error
    return loads(text, path=place)


def loads(text: str, *, path: Path | None = None) -> Documents:
    """Parses the text of a manifest file."""
    servers: list[InferenceServer] = []
    config_maps: dict[str, Keys] = {}
    secrets: dict[str, Keys] = {}
    for number, document in enumerate(_documents(text, path), start=1):
        kind = document.get("kind")
        if kind == KIND:
            servers.append(parse(document, path=path))
        elif kind in ("ConfigMap", "Secret"):
            name = (document.get("metadata") or {}).get("name")
            if not name:
                raise ManifestError(
                    f"document {number} ({kind}) has no name: add metadata.name", file=path
                )
            target = config_maps if kind == "ConfigMap" else secrets
            target[str(name)] = _keys(document, path)
    if not servers:
        raise ManifestError(f"no {KIND} in it: add a document with kind: {KIND}", file=path)
    if len(servers) > 1:
        names = ", ".join(server.name for server in servers)
        raise ManifestError(
            f"{len(servers)} InferenceServers in it ({names}): put each into a file of its own",
            file=path,
        )
    return Documents(servers[0], config_maps, secrets, path)


def parse(data: Mapping[str, Any], *, path: Path | None = None) -> InferenceServer:
    """Parses one InferenceServer; raises ManifestError for the first fault."""
    version = data.get("apiVersion")
    if version != API_VERSION:
        said = "is missing" if version is None else f"{version!r} isn't known"
        raise ManifestError(
            f"{said}: write apiVersion: {API_VERSION}",
            field="apiVersion",
            file=path,
        )
    try:
        return InferenceServer.model_validate(dict(data))
    except ValidationError as error:
        where, message = _first_fault(error)
        raise ManifestError(message, field=where, file=path) from error


class _Loader(yaml.SafeLoader):
    """Safe, and strict about a key that is written twice: YAML would keep the last in silence."""


def _mapping(loader: _Loader, node: yaml.MappingNode) -> dict[Any, Any]:
    seen: set[Any] = set()
    for key_node, _ in node.value:
        key = key_node.value
        if key in seen and key != "<<":
            raise yaml.constructor.ConstructorError(
                None, None, f"the key {key!r} is written twice: remove one", key_node.start_mark
            )
        seen.add(key)
    loader.flatten_mapping(node)
    return dict(loader.construct_pairs(node, deep=True))


_Loader.add_constructor("tag:yaml.org,2002:map", _mapping)


def _documents(text: str, path: Path | None) -> Iterator[dict[str, Any]]:
    try:
        parsed = list(yaml.load_all(text, Loader=_Loader))
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        place = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
        problem = getattr(error, "problem", None) or str(error)
        raise ManifestError(f"{place}{problem}", file=path) from error
    for document in parsed:
        if document is None:
            continue
        if not isinstance(document, dict):
            raise ManifestError("a document isn't a mapping: begin it with apiVersion:", file=path)
        yield document


def _keys(document: Mapping[str, Any], path: Path | None) -> dict[str, bytes]:
    kind, name = document["kind"], document["metadata"]["name"]
    encoded = "binaryData" if kind == "ConfigMap" else "data"
    plain = "data" if kind == "ConfigMap" else "stringData"
    try:
        keys = {
            str(key): base64.b64decode(value, validate=True)
            for key, value in (document.get(encoded) or {}).items()
        }
    except (ValueError, TypeError) as error:
        raise ManifestError(
            f"a value isn't base64: encode it, or use {plain}",
            field=f"{kind} {name}: {encoded}",
            file=path,
        ) from error
    for key, value in (document.get(plain) or {}).items():
        if not isinstance(value, str):
            raise ManifestError(
                f"{value!r} isn't a string: put it in quotes",
                field=f"{kind} {name}: {plain}.{key}",
                file=path,
            )
        keys[str(key)] = value.encode()
    return keys


def _first_fault(error: ValidationError) -> tuple[str, str]:
    # An unknown field first: it is often why a required one is missing.
    faults = sorted(error.errors(), key=lambda fault: fault["type"] != "extra_forbidden")
    fault = faults[0]
    where = _path(fault["loc"])
    if fault["type"] == "extra_forbidden":
        return where, _unknown(fault["loc"])
    if fault["type"] == "missing":
        return where, "is missing: add it"
    if fault["type"] == "value_error":
        return where, str(fault["ctx"]["error"])
    if fault["type"] == "rule":
        return where, fault["msg"]
    given = fault["input"]
    if isinstance(given, bool) and fault["type"] in ("enum", "string_type"):
        return where, (
            f"YAML reads an unquoted on, off, yes or no as {str(given).lower()}: "
            f"put the value in quotes{_choices(fault)}"
        )
    message = fault["msg"][0].lower() + fault["msg"][1:]
    return where, f"{message} (given: {given!r})"


def _choices(fault: Any) -> str:
    expected = fault.get("ctx", {}).get("expected")
    return f" ({expected})" if expected else ""


def _path(loc: tuple[str | int, ...]) -> str:
    text = ""
    for piece in loc:
        text += f"[{piece}]" if isinstance(piece, int) else f".{piece}" if text else str(piece)
    return text


def _unknown(loc: tuple[str | int, ...]) -> str:
    owner: type[BaseModel] | None = InferenceServer
    for piece in loc[:-1]:
        if owner is not None and isinstance(piece, str):
            owner = _model_at(owner, piece)
    known = _aliases(owner) if owner else []
    near = difflib.get_close_matches(str(loc[-1]), known, n=1, cutoff=0.5)
    cure = f"did you mean {near[0]}?" if near else f"known are {', '.join(known)}"
    return f"is no field of {KIND}: {cure}"


def _aliases(owner: type[BaseModel]) -> list[str]:
    return [info.alias or name for name, info in owner.model_fields.items()]


def _model_at(owner: type[BaseModel], alias: str) -> type[BaseModel] | None:
    for name, info in owner.model_fields.items():
        if (info.alias or name) == alias:
            return next(models_in(info.annotation), None)
    return None


def models_in(annotation: Any) -> Iterator[type[BaseModel]]:
    """The models that a field's annotation holds, inside unions and lists too."""
    if isinstance(annotation, type) and not isinstance(annotation, types.GenericAlias):
        if issubclass(annotation, BaseModel):
            yield annotation
        return
    for argument in typing.get_args(annotation):
        yield from models_in(argument)
