"""Plain ASGI: the few messages that this layer sends and reads itself."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

import msgspec
from starlette.responses import Response

from flatwake_service.http.errors import ApiError, Code

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Headers = list[tuple[bytes, bytes]]

JSON = b"application/json"
MAX_DISCARDED = 16 << 20


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


async def read_body(scope: Scope, receive: Receive, limit: int, seconds: float) -> bytes:
    """The whole body, never holding more than `limit` bytes.

    Raises:
        ApiError: it is larger, or took longer than `seconds`.
        Disconnected
    """
    try:
        async with asyncio.timeout(seconds):
            return await _read(scope, receive, limit)
    except TimeoutError:
        message = f"the body didn't arrive within {seconds:g} s"
        raise ApiError(Code.REQUEST_TIMEOUT, message) from None


async def _read(scope: Scope, receive: Receive, limit: int) -> bytes:
    """What a client has already sent of a body that is too large is read and thrown away, within
    bounds, or else closing the connection would take the answer with it.
    """
    announced = header(scope, b"content-length")
    size = int(announced) if announced and announced.isdigit() else 0
    if size > limit and header(scope, b"expect") is not None:
        raise _too_large(limit, size)
    parts: list[bytes] = []
    total = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise Disconnected
        part: bytes = message.get("body", b"")
        total += len(part)
        more = message.get("more_body", False)
        if total > limit:
            parts.clear()
            if not more or total > limit + MAX_DISCARDED:
                raise _too_large(limit, max(size, total))
        else:
            parts.append(part)
            if not more:
                return b"".join(parts)


def _too_large(limit: int, size: int) -> ApiError:
    return ApiError(
        Code.BODY_TOO_LARGE,
        f"the body has at least {size} bytes, and at most {limit} are allowed (limits.bodyBytes)",
    )
