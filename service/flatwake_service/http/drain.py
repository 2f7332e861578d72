"""The end of a server that was asked to end: nothing that it took is lost.

    signal      /ready is 503; requests are still taken, so that endpoints propagate
    + 5 s       new requests get 503, idle connections are closed, running requests finish
    + timeout   what still runs ends with an error event

From the signal on, every answer closes its connection. SIGINT leaves out the 5 s; a second signal
leaves out all waiting.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Awaitable

import uvicorn

from flatwake_service.http.errors import ApiError, Code
from flatwake_service.http.protocol import Protocol
from flatwake_service.http.service import Service

FLUSH = 2.0
"""Seconds that clients get to read their last bytes."""


class Drain:
    def __init__(self, service: Service, server: uvicorn.Server) -> None:
        self._service = service
        self._server = server
        self._propagation = service.settings.propagation
        self.asked = asyncio.Event()
        self._hurry = asyncio.Event()

    @property
    def hurried(self) -> bool:
        """Whether it was cut short."""
        return self._hurry.is_set()

    def signalled(self, number: int) -> None:
        name = signal.Signals(number).name
        if self.asked.is_set():
            self._service.log("signal", level="warning", signal=name, message="ending at once")
            self._hurry.set()
            return
        if number == signal.SIGINT:
            self._propagation = 0.0
        self._service.log("draining", signal=name, requests=self._service.admission.in_flight)
        self._service.draining = True
        for connection in self._connections():
            connection.leave()
        self.asked.set()

    async def run(self) -> None:
        """Until everything that was taken has been answered, or time is up."""
        await self._unless_hurried(asyncio.sleep(self._propagation))
        self._service.closed = True
        for connection in self._connections():
            # A request may be on its way on a connection that has had none yet; it gets its 503.
            if connection.cycle is not None:
                connection.shutdown()
        if self._service.engine is not None:
            self._service.engine.drain()
        tasks = set(self._server.server_state.tasks)
        if tasks:
            timeout = self._service.settings.drain_timeout
            await self._unless_hurried(asyncio.wait(tasks, timeout=timeout))

    async def finish(self) -> None:
        """Ends what still runs, and waits a little for it to be written."""
        service = self._service
        service.draining = service.closed = True
        seconds = f"{service.settings.drain_timeout:g} s"
        for generation in list(service.open):
            generation.fail(
                ApiError(
                    Code.DRAIN_TIMEOUT,
                    f"the server had to end before this request did (after {seconds})",
                )
            )
        tasks = set(self._server.server_state.tasks)
        if tasks:
            await asyncio.wait(tasks, timeout=FLUSH)
        service.log("closing", requests=service.admission.in_flight)

    def _connections(self) -> list[Protocol]:
        connections = self._server.server_state.connections
        return [c for c in connections if isinstance(c, Protocol)]

    async def _unless_hurried(self, wait: Awaitable[object]) -> None:
        waiting = asyncio.ensure_future(wait)
        hurry = asyncio.ensure_future(self._hurry.wait())
        await asyncio.wait({waiting, hurry}, return_when=asyncio.FIRST_COMPLETED)
        for task in (waiting, hurry):
            task.cancel()
