"""A request's body on its way in: from the socket to what it declares."""

from __future__ import annotations

import asyncio
from typing import TypeVar

import msgspec
from starlette.requests import Request

from flatwake_service.http import apart
from flatwake_service.http.errors import ApiError, Code
from flatwake_service.http.room import Place
from flatwake_service.http.service import Service
from flatwake_service.http.settings import Settings
from flatwake_service.http.wire import Disconnected, header

T = TypeVar("T", bound=msgspec.Struct)

SMALL = 64 << 10
"""Bytes of a body that needs no room: about what its connection may hold of it anyway."""
GRACE = 30.0
SLOWEST = 64 << 10
"""A body that has room must come within GRACE seconds and one more for this many bytes."""
MAX_DISCARDED = 16 << 20


async def read(request: Request, service: Service, kind: type[T]) -> T:
    """The request that a body holds. A small one waits for nobody's large one.

    Raises:
        ApiError: it is larger than allowed, found no room, came too slowly, or isn't what `kind`
            declares.
        Disconnected
    """
    settings = service.settings
    with service.room.place() as place:
        data = await _Body(request, place, settings).read()
        return await apart.decode(data, kind, settings.unknown_fields, service.decoding)


class _Body:
    """One body that is being read, never holding more of it than `bodyBytes`."""

    def __init__(self, request: Request, place: Place, settings: Settings) -> None:
        self._receive = request.receive
        self._place = place
        self._limit = settings.body_bytes
        self._patience = settings.queue_timeout
        self._seconds = settings.request_timeout
        announced = header(request.scope, b"content-length")
        self._size = int(announced) if announced and announced.isdigit() else None
        self._asks = header(request.scope, b"expect") is not None

    async def read(self) -> bytes:
        if self._asks and self._size is not None and self._size > self._limit:
            raise self._too_large(self._size)
        try:
            async with asyncio.timeout(self._seconds) as clock:
                return await self._whole(clock)
        except TimeoutError:
            message = f"the body didn't arrive within {self._seconds:g} s"
            raise ApiError(Code.REQUEST_TIMEOUT, message) from None

    async def _whole(self, clock: asyncio.Timeout) -> bytes:
        """What a client has already sent of a body that is too large is read and thrown away,
        within bounds, or else closing the connection would take the answer with it.
        """
        size = self._size or 0
        if SMALL < size <= self._limit:
            await self._make_room(size, clock)
        parts: list[bytes] = []
        total = 0
        while True:
            message = await self._receive()
            if message["type"] == "http.disconnect":
                raise Disconnected
            part: bytes = message.get("body", b"")
            total += len(part)
            more = message.get("more_body", False)
            if max(total, size) > self._limit:
                parts.clear()
                if not more or total > self._limit + MAX_DISCARDED:
                    raise self._too_large(max(size, total))
                continue
            parts.append(part)
            if not more:
                return b"".join(parts)
            if total > SMALL and not self._place.size:
                await self._make_room(self._limit, clock)

    async def _make_room(self, size: int, clock: asyncio.Timeout) -> None:
        """From now on nothing is read that hasn't room; and room isn't held for ever."""
        await self._place.take(size, self._patience)
        allowed = GRACE + size / SLOWEST
        end = asyncio.get_running_loop().time() + allowed
        before = clock.when()
        if before is None or end < before:
            clock.reschedule(end)
            self._seconds = allowed

    def _too_large(self, size: int) -> ApiError:
        return ApiError(
            Code.BODY_TOO_LARGE,
            f"the body has at least {size} bytes, and at most {self._limit} are allowed "
            "(limits.bodyBytes)",
        )
