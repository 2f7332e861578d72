"""A streamed answer: choices write events, one task sends what has gathered.

A token leaves in the turn of the event loop in which it came. Several that already wait (a slow
client, several choices) share one write.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

from starlette.responses import Response

from flatwake_service.http.choice import Choice
from flatwake_service.http.events import DONE, PING, Events, error_event, stamp_comment
from flatwake_service.http.exchange import exchange_of
from flatwake_service.http.generation import Generation
from flatwake_service.http.logprobs import Scored
from flatwake_service.http.responses import Finish
from flatwake_service.http.wire import Receive, Scope, Send, error_response

HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    # nginx would gather events otherwise.
    (b"x-accel-buffering", b"no"),
]


class EventStream(Response):
    """`ping`: seconds of silence until a comment is sent; 0: never.

    The status is sent when the request leaves the queue, so that one that never does can still get
    its own, or with the first ping.
    """

    def __init__(
        self, generation: Generation, events: Events, *, ping: float, usage: bool, stamps: bool
    ) -> None:
        self.status_code = 200
        self.background = None
        self._generation = generation
        self._events = events
        self._ping = ping
        self._usage = usage
        self._stamps = stamps
        self._pending: list[bytes] = []
        self._writers: list[Choice] = []
        """Whose events are pending."""
        self._waiter: asyncio.Future[None] | None = None
        self._silent = False
        self._sent = 0.0
        self._timer: asyncio.TimerHandle | None = None

    # What the choices write.

    def text(self, choice: Choice, text: str, scored: Sequence[Scored], stamp: float) -> None:
        if self._stamps:
            self._pending.append(stamp_comment(stamp))
        self._pending.append(self._events.text(choice.index, text, scored))
        self._writers.append(choice)
        waiter = self._waiter
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    def end(self, choice: Choice, finish: Finish, stamp: float) -> None:
        self._pending.append(self._events.finish(choice.index, finish))
        self._writers.append(choice)
        self.wake()

    def wake(self) -> None:
        waiter = self._waiter
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    # What the client gets.

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        loop = asyncio.get_running_loop()
        watch = loop.create_task(self._watch(receive))
        self._sent = loop.time()
        if self._ping:
            self._timer = loop.call_later(self._ping, self._tick)
        try:
            await self._run(scope, receive, send)
        finally:
            watch.cancel()
            self._generation.cancel()
            self._generation.release()
            self._writers.clear()
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None

    async def _watch(self, receive: Receive) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        self._generation.cancel()
        self.wake()

    def _tick(self) -> None:
        """One timer a stream, looked after only when it fires, instead of one a token."""
        loop = asyncio.get_running_loop()
        rest = self._sent + self._ping - loop.time()
        if rest <= 0:
            self._silent = True
            self.wake()
            rest = self._ping
        self._timer = loop.call_later(rest, self._tick)

    async def _run(self, scope: Scope, receive: Receive, send: Send) -> None:
        generation = self._generation
        while not (generation.started or generation.ended or self._silent):
            await self._wait()
        if generation.error is not None and not generation.started:
            await error_response(generation.error)(scope, receive, send)
            return
        await send({"type": "http.response.start", "status": 200, "headers": HEADERS})
        self._pending.insert(0, self._events.opening())
        await self._send_all(exchange_of(scope).send)

    async def _send_all(self, send: Send) -> None:
        generation, pending = self._generation, self._pending
        clock = asyncio.get_running_loop().time
        while True:
            ended = generation.ended
            if self._silent:
                self._silent = False
                pending.append(PING)
            if ended:
                pending.append(self._closing())
            if pending:
                body = b"".join(pending)
                pending.clear()
                writers, self._writers = self._writers, []
                self._sent = clock()
                await send({"type": "http.response.body", "body": body, "more_body": not ended})
                # It waited for a client that reads slowly; now the bytes are the socket's.
                moment = time.monotonic()
                for choice in writers:
                    choice.left(moment)
            if ended:
                return
            if not pending and not generation.ended:
                await self._wait()

    def _closing(self) -> bytes:
        """[DONE] stands only after a complete answer."""
        generation = self._generation
        if generation.outcome == "cancelled":
            return b""
        if generation.error is not None:
            return error_event(generation.error)
        return (self._events.usage(generation.usage()) if self._usage else b"") + DONE

    async def _wait(self) -> None:
        """Sleeps until `wake`."""
        waiter = self._waiter = asyncio.get_running_loop().create_future()
        await waiter
