"""Bytes to a request, with one clear error that names the field."""

from __future__ import annotations

import difflib
import json
import re
from functools import lru_cache
from typing import Any, Literal, TypeVar, cast

import msgspec
from msgspec import inspect

from flatwake_service.http.errors import ApiError, Code
from flatwake_service.http.schema import UNSUPPORTED

T = TypeVar("T", bound=msgspec.Struct)
Unknown = Literal["refuse", "ignore"]

_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F][0-9a-fA-F]{2}")
_SHOWN = 60


def decode(data: bytes, kind: type[T], unknown: Unknown = "refuse") -> T:
    """The request that a body holds.

    Raises:
        ApiError: the body isn't JSON, or isn't what `kind` declares.
    """
    if (found := plain(data, kind)) is not None:
        return found
    document = _document(data)
    if not isinstance(document, dict):
        raise ApiError(
            Code.INVALID_TYPE, f"the body must be a JSON object, got {_kind_of(document)}"
        )
    try:
        _clean(document, _described(kind), "", unknown)
        return msgspec.convert(document, kind)
    except msgspec.ValidationError as error:
        raise _refusal(error, document, kind) from None
    except RecursionError:
        raise _nested() from None


def plain(data: bytes, kind: type[T]) -> T | None:
    """The request, if it is written as `kind` declares it; None if it has to be looked at closer:
    it may be wrong, or have a null for what is absent.
    """
    try:
        return cast("T", _decoder(kind).decode(data))
    except (msgspec.MsgspecError, RecursionError):
        return None


@lru_cache
def _decoder(kind: type[msgspec.Struct]) -> msgspec.json.Decoder[msgspec.Struct]:
    return msgspec.json.Decoder(kind)


def _document(data: bytes) -> Any:
    if not data.strip():
        raise ApiError(Code.INVALID_JSON, "the body is empty; send a JSON object")
    try:
        return msgspec.json.decode(data)
    except RecursionError:
        raise _nested() from None
    except msgspec.MsgspecError as error:
        if _SURROGATE.search(data) and _lenient(data):
            raise ApiError(
                Code.INVALID_TEXT,
                "a string of the body holds half of a surrogate pair (\\ud800 to \\udfff): "
                "that isn't Unicode text",
            ) from None
        raise ApiError(Code.INVALID_JSON, f"the body isn't JSON: {error}") from None


def _lenient(data: bytes) -> bool:
    """Whether the body is JSON but for its lone surrogates."""
    try:
        json.loads(data)
    except (ValueError, RecursionError):
        return False
    return True


def _nested() -> ApiError:
    return ApiError(Code.INVALID_JSON, "the body is nested too deeply to be read")


@lru_cache
def _described(kind: type[msgspec.Struct]) -> inspect.StructType:
    described = inspect.type_info(kind)
    assert isinstance(described, inspect.StructType)
    return described


@lru_cache
def _fields(described: type[msgspec.Struct]) -> dict[str, inspect.Type]:
    info = inspect.type_info(described)
    assert isinstance(info, inspect.StructType)
    fields: dict[str, inspect.Type] = {f.encode_name: f.type for f in info.fields}
    if info.tag_field is not None:
        fields[info.tag_field] = inspect.AnyType()
    return fields


def _clean(value: Any, declared: inspect.Type, path: str, unknown: Unknown) -> None:
    """Drops nulls (absent) and unknown fields from what structs will be made of, and makes
    integers of whole numbers, in place."""
    if isinstance(value, dict):
        struct = _member(declared, inspect.StructType)
        if struct is None:
            return
        fields = _fields(struct.cls)
        _check_tag(value, struct, path)
        for name in [name for name, inner in value.items() if inner is None]:
            del value[name]
        for name in [name for name in value if name not in fields]:
            if unknown == "refuse":
                raise _unknown(name, fields, path)
            del value[name]
        for name, inner in value.items():
            if isinstance(inner, (dict, list)):
                _clean(inner, fields[name], f"{path}.{name}" if path else name, unknown)
            elif isinstance(inner, float):
                value[name] = _whole(inner, fields[name])
    elif isinstance(value, list) and (array := _member(declared, inspect.ListType)) is not None:
        _clean_list(value, array.item_type, path, unknown)


def _clean_list(value: list[Any], item: inspect.Type, path: str, unknown: Unknown) -> None:
    nested = _member(item, inspect.StructType) or _member(item, inspect.ListType)
    for index, inner in enumerate(value):
        if isinstance(inner, float):
            value[index] = _whole(inner, item)
        elif nested is not None and isinstance(inner, (dict, list)):
            _clean(inner, item, f"{path}[{index}]", unknown)


def _whole(value: float, declared: inspect.Type) -> float | int:
    """JSON has one kind of number: 5.0 is an integer, and some clients write it so."""
    wants_int = _member(declared, inspect.IntType) and not _member(declared, inspect.FloatType)
    return int(value) if wants_int and value.is_integer() else value


def _check_tag(value: dict[str, Any], struct: inspect.StructType, path: str) -> None:
    """A wrong tag comes first: its other fields are unknown only because of it."""
    if struct.tag_field is None:
        return
    tag = value.get(struct.tag_field)
    if isinstance(tag, str) and tag != struct.tag:
        where = f"{path}.{struct.tag_field}"
        raise ApiError(
            Code.UNSUPPORTED_VALUE,
            f"'{where}' must be '{struct.tag}', got {_got(tag)}",
            param=where,
        )


Kind = TypeVar("Kind", bound=inspect.Type)


def _member(declared: inspect.Type, kind: type[Kind]) -> Kind | None:
    """The member of this kind in a type that may be a union or annotated."""
    if isinstance(declared, inspect.Metadata):
        return _member(declared.type, kind)
    if isinstance(declared, inspect.UnionType):
        found = (_member(member, kind) for member in declared.types)
        return next((member for member in found if member is not None), None)
    return declared if isinstance(declared, kind) else None


def _unknown(name: str, fields: dict[str, inspect.Type], path: str) -> ApiError:
    where = f"{path}.{name}" if path else name
    near = difflib.get_close_matches(name[:_SHOWN], fields, n=1, cutoff=0.0)
    close = difflib.SequenceMatcher(None, name[:_SHOWN], near[0]).ratio() if near else 0.0
    hint = f"did you mean '{near[0]}'?" if close >= 0.7 else f"the nearest known is '{near[0]}'"
    return ApiError(
        Code.UNKNOWN_FIELD, f"unknown field '{_shorten(where)}': {hint}", param=_shorten(where)
    )


_PATH = re.compile(r"^(?P<what>.*?)(?: - at `(?P<key>key in )?\$(?P<path>[^`]*)`)?$", re.DOTALL)
_STEP = re.compile(r"\.([^.\[\]]+)|\[(\d+)\]|(\[\.\.\.\])")


def _refusal(error: msgspec.ValidationError, document: Any, kind: type[T]) -> ApiError:
    """Our words for what msgspec found."""
    match = _PATH.match(str(error))
    assert match is not None
    what, path = match["what"], (match["path"] or "")
    value, declared = _follow(path, document, _described(kind))
    param = path.removeprefix(".").replace("[...]", "") or None
    if missing := re.match(r"Object missing required field `(.*)`", what):
        param = f"{param}.{missing[1]}" if param else missing[1]
        return ApiError(Code.MISSING_FIELD, f"'{param}' is missing", param=param)
    unsupported = isinstance(declared, inspect.Metadata) and UNSUPPORTED in (declared.extra or {})
    wrong_type = re.match(r"Expected `(.*?)`, got `(.*)`", what)
    if wrong_type:
        message = f"'{param}' must be {_types(wrong_type[1])}, got {_got(value)}"
    else:
        message = f"'{param}' {_limit(what, declared)}, got {_got(value)}"
    if unsupported:
        return ApiError(Code.UNSUPPORTED_VALUE, f"{message} ({_describe(declared)})", param=param)
    return ApiError(Code.INVALID_TYPE if wrong_type else Code.INVALID_VALUE, message, param=param)


def _follow(path: str, value: Any, declared: inspect.Type) -> tuple[Any, inspect.Type]:
    """The value at a path of msgspec's, and the type that was declared for it."""
    for name, index, _ in _STEP.findall(path):
        if name and isinstance(value, dict):
            struct = _member(declared, inspect.StructType)
            declared = _fields(struct.cls).get(name, declared) if struct else declared
            value = value.get(name)
        elif index and isinstance(value, list):
            array = _member(declared, inspect.ListType)
            declared = array.item_type if array else declared
            value = value[int(index)]
    return value, _marked(declared)


def _marked(declared: inspect.Type) -> inspect.Type:
    """The annotated member of an optional type, if there is one."""
    if isinstance(declared, inspect.UnionType):
        return next((m for m in declared.types if isinstance(m, inspect.Metadata)), declared)
    return declared


_NAMES = {
    "str": "a string",
    "int": "an integer",
    "float": "a number",
    "bool": "true or false",
    "array": "a list",
    "object": "an object",
    "null": "null",
}


def _types(text: str) -> str:
    names = [_NAMES.get(name, name) for name in text.split(" | ") if name != "null"]
    return " or ".join(names)


def _limit(what: str, declared: inspect.Type) -> str:
    if length := re.match(r"Expected `(\w+)` of length (<=|>=) (\d+)", what):
        unit = {"str": "character", "array": "element"}.get(length[1], "entry")
        units = unit if length[3] == "1" else ("entries" if unit == "entry" else unit + "s")
        least = "at least" if length[2] == ">=" else "at most"
        return f"must have {least} {length[3]} {units}"
    if bound := re.match(r"Expected `(\w+)` (<=|>=) (\S+)", what):
        return f"must be {'at least' if bound[2] == '>=' else 'at most'} {_number(bound[3])}"
    if what.startswith(("Invalid enum value", "Invalid value")):
        return f"must be {_choices(declared)}"
    if "out of range" in what:
        return "must be an integer of at most 64 bits"
    return f"is refused: {what[0].lower()}{what[1:]}"


def _number(text: str) -> str:
    return text.removesuffix(".0")


def _choices(declared: inspect.Type) -> str:
    literal = _member(declared, inspect.LiteralType)
    values = sorted(str(value) for value in literal.values) if literal else ["text"]
    return " or ".join(f"'{value}'" for value in values)


def _describe(declared: inspect.Type) -> str:
    schema = declared.extra_json_schema if isinstance(declared, inspect.Metadata) else None
    described = str((schema or {}).get("description", "Only text is supported."))
    return described.rstrip(".").lower()


def _got(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float)):
        return _shorten(str(value)) if abs(value) < 1e300 else "a number that is out of range"
    if isinstance(value, str) and len(value) <= _SHOWN:
        return f"the string '{value}'"
    return _kind_of(value)


def _kind_of(value: Any) -> str:
    if isinstance(value, list):
        return f"a list of {len(value)}"
    if isinstance(value, dict):
        return f"an object of {len(value)}"
    if isinstance(value, str):
        return f"a string of {len(value)} characters"
    return {bool: "true or false", type(None): "null"}.get(type(value), "a number")


def _shorten(text: str) -> str:
    return text if len(text) <= 2 * _SHOWN else text[: 2 * _SHOWN] + "…"
