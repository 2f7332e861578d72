"""The FastAPI application: its routes, and how errors become answers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from fastapi import FastAPI, Request
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.responses import Response
from starlette.types import ASGIApp

from flatwake_service.http import (
    catalog,
    chat,
    completions,
    openapi,
    probes,
    responses,
    schema,
    tokens,
)
from flatwake_service.http.errors import ApiError, Code
from flatwake_service.http.exchange import ExchangeMiddleware, exchange_of
from flatwake_service.http.service import Service
from flatwake_service.http.wire import Disconnected, error_response

Endpoint = Callable[[Request, Service], Awaitable[Response]]

_ERRORS = (400, 401, 404, 413, 500, 503, 504)
_GENERATION_ERRORS = (400, 401, 404, 413, 429, 500, 503, 504)


def build(service: Service) -> ASGIApp:
    """The whole ASGI application, middleware included."""
    app = FastAPI(title="Flatwake", version=service.version, docs_url=None, redoc_url=None)
    _add_probes(app, service)
    _add_api(app, service)
    _add_handlers(app, service)
    made: dict[str, object] = {}

    def document() -> dict[str, object]:
        if not made:
            made.update(openapi.document(app, service.version))
        return made

    app.openapi = document  # type: ignore[method-assign]
    wrapped: ASGIApp = ExchangeMiddleware(app, service)
    origins = service.settings.cors_origins
    if origins:
        wrapped = CORSMiddleware(
            wrapped,
            allow_origins=list(origins),
            allow_methods=["GET", "POST", "OPTIONS"],
            allow_headers=["*"],
            expose_headers=["x-request-id", "retry-after"],
        )
    return wrapped


def _add_probes(app: FastAPI, service: Service) -> None:
    described: dict[str, tuple[Endpoint, openapi.Described]] = {
        "/health": (probes.health, openapi.describe(responses.Health)),
        "/ready": (
            probes.ready,
            openapi.describe(responses.Readiness, also={503: responses.Readiness}),
        ),
        "/status": (probes.status, openapi.describe("ServerStatus")),
        "/metrics": (probes.metrics, openapi.describe("text/plain")),
        "/version": (probes.version, openapi.describe(responses.Version)),
    }
    for path, (endpoint, description) in described.items():
        _route(app, service, "GET", path, endpoint, description)
        _route(app, service, "HEAD", path, endpoint, None)


def _add_api(app: FastAPI, service: Service) -> None:
    generate = openapi.describe(
        responses.ChatCompletion,
        body=schema.ChatRequest,
        events=responses.ChatCompletionChunk,
        errors=_GENERATION_ERRORS,
    )
    _route(app, service, "POST", "/v1/chat/completions", chat.chat, generate)
    generate = openapi.describe(
        responses.Completion,
        body=schema.CompletionRequest,
        events=responses.Completion,
        errors=_GENERATION_ERRORS,
    )
    _route(app, service, "POST", "/v1/completions", completions.completions, generate)
    listed = openapi.describe(responses.ModelList, errors=(401,))
    _route(app, service, "GET", "/v1/models", catalog.models, listed)
    one = openapi.describe(responses.Model, errors=(401, 404))
    _route(app, service, "GET", "/v1/models/{model:path}", catalog.model, one)
    described = openapi.describe(responses.Tokens, body=schema.TokenizeRequest, errors=_ERRORS)
    _route(app, service, "POST", "/tokenize", tokens.tokenize, described)
    described = openapi.describe(responses.Text, body=schema.DetokenizeRequest, errors=_ERRORS)
    _route(app, service, "POST", "/detokenize", tokens.detokenize, described)


def _route(
    app: FastAPI,
    service: Service,
    method: str,
    path: str,
    endpoint: Endpoint,
    described: openapi.Described | None,
) -> None:
    async def call(request: Request) -> Response:
        return await endpoint(request, service)

    call.__doc__ = endpoint.__doc__
    app.add_api_route(
        path,
        call,
        methods=[method],
        name=endpoint.__name__,
        operation_id=endpoint.__name__,
        include_in_schema=described is not None,
        response_class=Response,
        **(described or {}),
    )


def _add_handlers(app: FastAPI, service: Service) -> None:
    async def refused(request: Request, error: Exception) -> Response:
        assert isinstance(error, ApiError)
        exchange = exchange_of(request.scope)
        if request.url.path.endswith("/completions") and "outcome" not in exchange.fields:
            service.counters.requests["rejected"] += 1
            exchange.fields["outcome"] = "rejected"
        exchange.fields["code"] = error.code.value
        return error_response(error)

    async def unrouted(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        code = Code.METHOD_NOT_ALLOWED if error.status_code == 405 else Code.NOT_FOUND
        path = request.url.path[:200]
        what = (
            f"{path} doesn't take {request.method}"
            if code is Code.METHOD_NOT_ALLOWED
            else f"there is no {path}; the API is described at /openapi.json"
        )
        answer = error_response(ApiError(code, what))
        answer.raw_headers += [
            (name.lower().encode(), value.encode()) for name, value in (error.headers or {}).items()
        ]
        return answer

    async def gone(request: Request, error: Exception) -> Response:
        exchange_of(request.scope).fields.setdefault("outcome", "disconnected")
        return Response(status_code=499)

    async def bug(request: Request, error: Exception) -> Response:
        exchange = exchange_of(request.scope)
        # Its text may quote a prompt; the traceback, which follows in the log, doesn't.
        exchange.fields["exception"] = type(error).__name__
        message = (
            "there is a bug in the server; please report it with the request id "
            f"{exchange.id.decode()}"
        )
        return error_response(ApiError(Code.INTERNAL_ERROR, message))

    app.add_exception_handler(ApiError, refused)
    app.add_exception_handler(HTTPException, unrouted)
    app.add_exception_handler(Disconnected, gone)
    app.add_exception_handler(Exception, bug)
