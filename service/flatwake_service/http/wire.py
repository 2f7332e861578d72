"""Plain ASGI: the few messages that this layer sends and reads itself."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

import msgspec
from starlette.responses import Response

from flatwake_service.http.errors import ApiError

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Headers = list[tuple[bytes, bytes]]

JSON = b"application/json"


class Disconnected(Exception):
    """The client went away before its request was read."""


class JsonResponse(Response):
    """A msgspec struct, or ready bytes, as the whole answer."""

    def __init__(
        self, body: msgspec.Struct | bytes, status: int = 200, headers: Headers | None = None
    ) -> None:
        self.status_code = status
        self.background = None
        self.body = body if isinstance(body, bytes) else msgspec.json.encode(body)
        self.raw_headers = [
            (b"content-type", JSON),
            (b"content-length", str(len(self.body)).encode()),
            *(headers or []),
        ]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send(
            {
                "type": "http.response.start",
                "status": self.status_code,
                "headers": self.raw_headers,
            }
        )
        await send({"type": "http.response.body", "body": self.body})


def error_response(error: ApiError) -> JsonResponse:
    return JsonResponse(error.encode(), error.status, error.headers())


def header(scope: Scope, name: bytes) -> bytes | None:
    """The first header of this (lower-case) name."""
    return next((value for key, value in scope["headers"] if key == name), None)
