"""Around every request: its id, its log line, its errors, and what all responses carry."""

from __future__ import annotations

import re
import secrets
import time

from starlette.types import ASGIApp

from flatwake_service.http.errors import ApiError, Code
from flatwake_service.http.log import Value
from flatwake_service.http.protocol import ARRIVAL
from flatwake_service.http.service import Service
from flatwake_service.http.wire import (
    Message,
    Receive,
    Scope,
    Send,
    error_response,
    header,
)

_ID = re.compile(rb"[\x21-\x7e]{1,128}")
KEY = "flatwake.exchange"

OPEN = frozenset({"/health", "/ready", "/status", "/metrics", "/version", "/openapi.json"})
"""Paths that want no key, and that are logged only when something is wrong with them."""


class Exchange:
    """One request and its answer. Endpoints add to `fields` what its log line shall say.

    `send` is the server's own: a stream's bodies, which nothing needs to see, go there directly.
    """

    __slots__ = ("arrival", "fields", "id", "send", "status")

    def __init__(self, request_id: bytes, send: Send, arrival: float) -> None:
        self.id = request_id
        self.send = send
        self.arrival = arrival
        self.status = 0
        self.fields: dict[str, Value] = {}


def exchange_of(scope: Scope) -> Exchange:
    exchange = scope[KEY]
    assert isinstance(exchange, Exchange)
    return exchange


class ExchangeMiddleware:
    """Plain ASGI: nothing here wraps a stream but one call a message."""

    def __init__(self, app: ASGIApp, service: Service) -> None:
        self._app = app
        self._service = service

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        given = header(scope, b"x-request-id")
        usable = given is not None and _ID.fullmatch(given) is not None
        request_id = given if given and usable else secrets.token_hex(16).encode()
        arrival = scope.get(ARRIVAL)
        exchange = Exchange(request_id, send, time.monotonic() if arrival is None else arrival)
        scope[KEY] = exchange

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                exchange.status = message["status"]
                extra = [(b"x-request-id", exchange.id)]
                if self._service.draining:
                    extra.append((b"connection", b"close"))
                message["headers"] = [*message.get("headers", ()), *extra]
            await send(message)

        try:
            self._authorize(scope)
            await self._app(scope, receive, send_with_headers)
        except ApiError as error:
            exchange.fields["code"] = error.code.value
            await error_response(error)(scope, receive, send_with_headers)
        finally:
            self._log(exchange, scope)
            # The server's send knows the scope: a ring that only a collection would find.
            scope.pop(KEY, None)

    def _authorize(self, scope: Scope) -> None:
        path, keys = scope["path"], self._service.keys
        # A preflight carries no key; CORS answers it, or nobody.
        if not keys.required or path in OPEN or scope["method"] == "OPTIONS":
            return
        if not keys.admits(header(scope, b"authorization")):
            raise ApiError(
                Code.INVALID_API_KEY,
                "this server wants an API key: send 'Authorization: Bearer KEY' with a valid one",
            )

    def _log(self, exchange: Exchange, scope: Scope) -> None:
        # A probe that says no is an answer; what it says is logged where it changes.
        if scope["path"] in OPEN and exchange.status in (200, 503):
            return
        self._service.log(
            "request",
            level="error" if exchange.status >= 500 else "info",
            id=exchange.id.decode(),
            method=scope["method"],
            path=scope["path"],
            status=exchange.status or None,
            seconds=round(time.monotonic() - exchange.arrival, 6),
            **exchange.fields,
        )
