"""Keeps a Lease from a thread of its own, so that a loop that is busy doesn't lose it."""

import asyncio
import threading
from collections.abc import Callable

from flatwake_operator.api import Api
from flatwake_operator.lease import Lease


class Keeper:
    def __init__(self, lease: Lease, connect: Callable[[], Api]) -> None:
        """connect: makes a client for the thread's loop, as clients can't be shared by loops."""
        self.lease = lease
        self._connect = connect
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[None] | None = None
        self._asked = threading.Event()

    async def run(self) -> None:
        """Renews until cancelled; raises LeaseLostError when it can't any more."""
        running = asyncio.get_running_loop().run_in_executor(None, asyncio.run, self._keep())
        try:
            await asyncio.shield(running)
        except asyncio.CancelledError:
            self._stop()
            await running
            raise

    async def _keep(self) -> None:
        self._loop, self._task = asyncio.get_running_loop(), asyncio.current_task()
        before, self.lease.api = self.lease.api, self._connect()
        try:
            if not self._asked.is_set():
                await self.lease.keep()
        except asyncio.CancelledError:
            return  # as was asked for
        finally:
            await self.lease.api.close()
            self.lease.api = before

    def _stop(self) -> None:
        self._asked.set()
        if self._loop and self._task:
            self._loop.call_soon_threadsafe(self._task.cancel)
