"""Room for large bodies: what all clients together may have on its way in.

A client that sends slowly holds its part for long, and nobody else's memory grows: those for whom
no room is left aren't read from until there is, in the order in which they came.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager

from flatwake_service.http.admission import UNKNOWN_RETRY
from flatwake_service.http.errors import ApiError, Code

TOTAL = 64 << 20
"""Bytes; a server whose `bodyBytes` is more has room for one."""
MOST_WAITING = 64
"""Bodies that wait for room. Each one's connection holds what it had sent before it was paused."""


class Room:
    """Owned by the event loop."""

    def __init__(self, total: int) -> None:
        self.free = total
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    @contextmanager
    def place(self) -> Iterator[Place]:
        """Nothing at first; what it takes is given back at the end."""
        place = Place(self)
        try:
            yield place
        finally:
            self.free += place.size
            self._grant()

    async def take(self, size: int, patience: float) -> None:
        """Waits for `size` bytes, at most `patience` seconds.

        Raises:
            ApiError: too many wait already, or it took too long.
        """
        if not self._waiting and size <= self.free:
            self.free -= size
            return
        if self.waiting >= MOST_WAITING:
            raise ApiError(
                Code.QUEUE_FULL,
                f"the server reads as many large bodies as it has room for, and {self.waiting} "
                "wait; try again later, or send a smaller one",
                retry_after=UNKNOWN_RETRY,
            )
        granted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        entry = (size, granted)
        self._waiting.append(entry)
        try:
            async with asyncio.timeout(patience):
                await granted
        except BaseException as error:
            if entry in self._waiting:
                self._waiting.remove(entry)
            elif not granted.cancelled():
                self.free += size  # it came too late
            self._grant()
            if isinstance(error, TimeoutError):
                raise self._late(patience) from None
            raise

    def _grant(self) -> None:
        while self._waiting and self._waiting[0][0] <= self.free:
            size, granted = self._waiting.popleft()
            if not granted.cancelled():
                self.free -= size
                granted.set_result(None)

    def _late(self, patience: float) -> ApiError:
        return ApiError(
            Code.QUEUE_TIMEOUT,
            f"the request waited {patience:g} s for room for its body; try again later, or send "
            "a smaller one",
            retry_after=UNKNOWN_RETRY,
        )


class Place:
    """One body's part of the room."""

    def __init__(self, room: Room) -> None:
        self._room = room
        self.size = 0

    async def take(self, size: int, patience: float) -> None:
        """See `Room.take`; only once."""
        await self._room.take(size, patience)
        self.size = size
