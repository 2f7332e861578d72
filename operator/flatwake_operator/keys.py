"""A queue of keys: the same key is never worked on twice at once, and failures wait longer."""

import asyncio
import heapq
import logging
import random
import time
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

from flatwake_operator.errors import ApiError, LeaseLostError

K = TypeVar("K")
log = logging.getLogger(__name__)

FIRST_SECONDS, MOST_SECONDS = 1.0, 300.0


class KeyQueue(Generic[K]):
    """Keys that wait, each at most once.

    A key that is added while it is being worked on runs again afterwards, since its work may have
    looked at the world before the change that woke it.
    """

    def __init__(
        self,
        work: Callable[[K], Awaitable[float | None]],
        clock: Callable[[], float] = time.monotonic,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        """work: does a key's work; the seconds it returns are when to do it again, if ever."""
        self._work = work
        self._clock = clock
        self._jitter = jitter
        self._due: dict[K, float] = {}
        self._heap: list[tuple[float, int, K]] = []
        self._sequence = 0
        self._running: set[K] = set()
        self._again: dict[K, float] = {}
        self._failures: dict[K, int] = {}
        self._wake = asyncio.Event()
        self.fatal: BaseException | None = None

    def add(self, key: K, after: float = 0.0) -> None:
        """Wakes a key after some seconds; the earliest wish wins."""
        due = self._clock() + after
        if key in self._running:
            self._again[key] = min(due, self._again.get(key, due))
            return
        if key in self._due and self._due[key] <= due:
            return
        self._due[key] = due
        self._sequence += 1
        heapq.heappush(self._heap, (due, self._sequence, key))
        self._wake.set()

    def forget(self, key: K) -> None:
        """Drops what is remembered of a key that is gone."""
        self._failures.pop(key, None)

    @property
    def depth(self) -> int:
        """Keys that are due or being worked on."""
        now = self._clock()
        return sum(due <= now for due in self._due.values()) + len(self._running)

    @property
    def failing(self) -> int:
        """Keys whose last work failed."""
        return len(self._failures)

    def take(self) -> K | None:
        """The next key that is due, now being worked on; None if none is."""
        while self._heap and self._heap[0][0] <= self._clock():
            due, _, key = heapq.heappop(self._heap)
            if self._due.get(key) == due:
                del self._due[key]
                self._running.add(key)
                return key
        return None

    def done(self, key: K, after: float | None) -> None:
        """Ends a key's work; `after` wakes it again."""
        self._running.discard(key)
        again = self._again.pop(key, None)
        if again is not None:
            self.add(key, max(0.0, again - self._clock()))
        if after is not None:
            self.add(key, after)

    async def run(self, workers: int) -> None:
        """Works on keys until cancelled; ends with LeaseLostError when a write was held back."""
        async with asyncio.TaskGroup() as group:
            for _ in range(workers):
                group.create_task(self._worker())

    async def _worker(self) -> None:
        while True:
            key = self.take()
            if key is None:
                await self._wait()
                continue
            after: float | None = None
            try:
                after = await self._work(key)
                self._failures.pop(key, None)
            except LeaseLostError:
                raise
            except Exception as error:  # noqa: BLE001  (whatever fails is tried again, with its reason logged)
                after = self._backoff(key, error)
            finally:
                self.done(key, after)

    def _backoff(self, key: K, error: Exception) -> float:
        failures = self._failures[key] = self._failures.get(key, 0) + 1
        wait = min(MOST_SECONDS, FIRST_SECONDS * float(1 << min(failures - 1, 16)))
        wait *= 0.75 + 0.5 * self._jitter()
        if isinstance(error, ApiError):
            wait = max(wait, error.retry_after or 0.0)
            log.warning("%s: %s; again in %.1f s", key, error, wait)
        else:
            log.warning("%s: %s; again in %.1f s", key, error, wait, exc_info=error)
        return wait

    async def _wait(self) -> None:
        # One that adds a key sets the event; every worker then looks, and those without go back.
        self._wake.clear()
        if self._heap and self._heap[0][0] <= self._clock():
            return
        pause = self._heap[0][0] - self._clock() if self._heap else None
        try:
            await asyncio.wait_for(self._wake.wait(), pause)
        except TimeoutError:
            return
