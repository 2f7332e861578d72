"""The OpenAPI document: every body that is read or written, errors included.

FastAPI describes the paths; the schemas come from the structs that bodies are really made of.
"""

from __future__ import annotations

from typing import Any, TypedDict

import msgspec
from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from flatwake_service.http import responses, schema
from flatwake_service.http.errors import KINDS, Code, ErrorBody
from flatwake_service.manifest import ServerStatus

JsonSchema = dict[str, Any]

_REF = "#/components/schemas/{name}"
_STRUCTS: tuple[type[msgspec.Struct], ...] = (
    schema.ChatRequest,
    schema.CompletionRequest,
    schema.TokenizeRequest,
    schema.DetokenizeRequest,
    responses.ChatCompletion,
    responses.ChatCompletionChunk,
    responses.Completion,
    responses.ModelList,
    responses.Model,
    responses.Tokens,
    responses.Text,
    responses.Health,
    responses.Readiness,
    responses.Version,
    ErrorBody,
)

_TITLES = {
    400: "The request is wrong; `param` names the field.",
    401: "No valid API key.",
    404: "There is no such path or model.",
    405: "The path has other methods.",
    413: "The body is too large.",
    429: "Too many requests wait.",
    500: "A bug, or a sequence that failed.",
    503: "Loading, draining, waited too long, or the engine ended.",
    504: "The request took longer than the server allows.",
}


class Described(TypedDict, total=False):
    """What a route passes on to FastAPI."""

    responses: dict[int | str, dict[str, Any]]
    openapi_extra: dict[str, Any]


def describe(
    answer: type[msgspec.Struct] | str,
    *,
    body: type[msgspec.Struct] | None = None,
    events: type[msgspec.Struct] | None = None,
    errors: tuple[int, ...] = (),
    also: dict[int, type[msgspec.Struct]] | None = None,
) -> Described:
    """The documentation of a route. `answer`: its 200; a string names a schema or media type.

    `events`: what a stream's events hold. `also`: other statuses with a body of their own.
    """
    content: dict[str, Any] = {}
    if isinstance(answer, str) and "/" in answer:
        content[answer] = {"schema": {"type": "string"}}
    else:
        content["application/json"] = {"schema": _reference(answer)}
    if events is not None:
        content["text/event-stream"] = {"schema": _event(events)}
    described: dict[int | str, dict[str, Any]] = {200: {"content": content}}
    for status in errors:
        described[status] = _error(status)
    for status, kind in (also or {}).items():
        described[status] = {
            "description": _TITLES[status],
            "content": {"application/json": {"schema": _reference(kind)}},
        }
    if body is None:
        return Described(responses=described)
    return Described(
        responses=described,
        openapi_extra={
            "requestBody": {
                "required": True,
                "content": {"application/json": {"schema": _reference(body)}},
            }
        },
    )


def document(app: FastAPI, version: str) -> dict[str, Any]:
    """The whole document."""
    made: dict[str, Any] = get_openapi(
        title="Flatwake",
        version=version,
        description="OpenAI's API over Flatwake's engine.",
        routes=app.routes,
    )
    _, schemas = msgspec.json.schema_components(_STRUCTS, ref_template=_REF)
    status = ServerStatus.model_json_schema(
        mode="serialization", ref_template=_REF.format(name="{model}")
    )
    status["title"] = "ServerStatus"
    schemas |= status.pop("$defs", {})
    schemas["ServerStatus"] = status
    components = made.setdefault("components", {})
    components["schemas"] = schemas
    components["securitySchemes"] = {"key": {"type": "http", "scheme": "bearer"}}
    return made


def _reference(kind: type[msgspec.Struct] | str) -> JsonSchema:
    return {"$ref": _REF.format(name=kind if isinstance(kind, str) else kind.__name__)}


def _event(kind: type[msgspec.Struct]) -> JsonSchema:
    """One event of a stream; comments aren't events."""
    return {
        "type": "object",
        "description": f"Server-sent events: `data` is a {kind.__name__}, an error, or [DONE].",
        "properties": {
            "event": {"type": "string", "enum": ["message"]},
            "data": {
                "type": "string",
                "contentMediaType": "application/json",
                "contentSchema": {"anyOf": [_reference(kind), _reference(ErrorBody)]},
            },
        },
        "required": ["data"],
    }


def _error(status: int) -> dict[str, Any]:
    codes = ", ".join(f"`{code.value}`" for code in Code if KINDS[code].status == status)
    return {
        "description": f"{_TITLES[status]} Codes: {codes}.",
        "content": {"application/json": {"schema": _reference(ErrorBody)}},
    }
