"""Who may come in: the bound on waiting requests, and when to come back."""

from __future__ import annotations

import math
import time
from collections import deque

from flatwake_service.http.errors import ApiError, Code

RATE_WINDOW = 60.0
LONGEST_RETRY = 60
UNKNOWN_RETRY = 5
"""Seconds to come back after when nothing has finished recently, so that no rate is known."""


class Admission:
    """Counts requests: one waits until its first sequence's first step, then it runs.

    Invariant: every request that entered is in exactly one of `waiting` and `running` until it
    leaves, once.
    """

    def __init__(self, queue: int, max_sequences: int) -> None:
        self.queue = queue
        self.max_sequences = max_sequences
        self.waiting = 0
        self.running = 0
        self.sequences = 0
        """Sequences that have started and not ended."""
        self._left: deque[float] = deque(maxlen=1024)

    @property
    def in_flight(self) -> int:
        return self.waiting + self.running

    def enter(self) -> Ticket:
        """Admits a request as a waiting one.

        Requests that fit into free sequences don't count against the queue: they wait for no one.

        Raises:
            ApiError: `queue` requests wait already.
        """
        free = max(0, self.max_sequences - self.sequences)
        if self.waiting - free >= self.queue:
            behind = self.waiting - free
            raise ApiError(
                Code.QUEUE_FULL,
                f"the server is busy: {self.running} requests run and {behind} wait, of at most "
                f"{self.queue}; try again later",
                retry_after=self.retry_after(),
            )
        self.waiting += 1
        return Ticket(self)

    def left(self) -> None:
        now = time.monotonic()
        self._left.append(now)
        self._forget(now)

    def retry_after(self) -> int:
        """Whole seconds, 1 to 60, until the present queue has been worked off at the recent rate
        at which requests left.
        """
        now = time.monotonic()
        self._forget(now)
        if len(self._left) < 2:
            return UNKNOWN_RETRY
        rate = len(self._left) / max(now - self._left[0], 1e-3)
        return min(LONGEST_RETRY, max(1, math.ceil(self.waiting / rate)))

    def _forget(self, now: float) -> None:
        while self._left and now - self._left[0] > RATE_WINDOW:
            self._left.popleft()


class Ticket:
    """A request's place. `leave` is safe to call again."""

    __slots__ = ("_admission", "_state")

    def __init__(self, admission: Admission) -> None:
        self._admission = admission
        self._state = "waiting"

    def start(self) -> None:
        """Its first sequence runs."""
        if self._state == "waiting":
            self._state = "running"
            self._admission.waiting -= 1
            self._admission.running += 1

    def leave(self) -> None:
        if self._state == "left":
            return
        if self._state == "waiting":
            self._admission.waiting -= 1
        else:
            self._admission.running -= 1
            self._admission.left()
        self._state = "left"
