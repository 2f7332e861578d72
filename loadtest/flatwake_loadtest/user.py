"""A user as locust runs it: asks what its wave gives it, streams the answer, says how it went.

Importing this imports locust, which patches sockets and threads for gevent: only the driving
process does so.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from locust import User, task  # first: it patches the interpreter for gevent
from locust.exception import StopUser

from .answer import UNFIT, Answer, Json
from .stream import Client

if TYPE_CHECKING:
    from .crew import Hall


@dataclass(frozen=True)
class Job:
    """One request of one user; `tag` says what it is for, `abort_after` when the user goes away.

    A body in bytes is sent as it is, for servers must bear those too.
    """

    body: Json | bytes
    think: float = 0.0
    abort_after: int | None = None
    stall: float = 0.0
    tag: str = ""
    obey_retry: bool = False


# What a user of this number does next; None ends it.
Source = Callable[[int], Job | None]


@dataclass(frozen=True)
class Entry:
    """What a user is told when it comes: its number in the wave, and whom it asks."""

    number: int
    wave: str
    url: str
    api_key: str | None = None


class Call(Protocol):
    """The stage, as a user knows it."""

    def enter(self) -> Entry: ...

    def next(self, user: int) -> Job | None:
        """What this user does next, as soon as there is something; None: it leaves."""

    def saw(self, user: int) -> None:
        """An event with text came."""

    def record(self, answer: Answer) -> None: ...

    def leave(self, user: int) -> None: ...


class StreamUser(User):
    """Asks one request after the other; its wave decides what and until when."""

    environment: Hall

    def on_start(self) -> None:
        self.stage = self.environment.stage
        entry = self.stage.enter()
        self.number, self.wave = entry.number, entry.wave
        self.client = Client(entry.url, entry.api_key)

    def on_stop(self) -> None:
        self.client.close()
        self.stage.leave(self.number)

    @task
    def ask(self) -> None:
        job = self.stage.next(self.number)
        if job is None:
            raise StopUser
        time.sleep(job.think)
        answer = self._ask(job)
        while job.obey_retry and answer.outcome == "rejected" and answer.retry_after:
            time.sleep(float(answer.retry_after))
            answer = self._ask(job)

    def _ask(self, job: Job) -> Answer:
        answer = self.client.chat(
            job.body,
            abort_after=job.abort_after,
            stall=job.stall,
            on_event=lambda: self.stage.saw(self.number),
        )
        answer.wave, answer.user, answer.tag = self.wave, self.number, job.tag
        self.stage.record(answer)
        fine = answer.complete or answer.outcome == "cancelled" or answer.tag in UNFIT
        failure = None if fine else answer.error
        self.environment.events.request.fire(  # type: ignore[no-untyped-call]
            request_type="chat",
            name=self.wave,
            response_time=answer.seconds * 1000,
            response_length=len(answer.text),
            exception=RuntimeError(failure) if failure else None,
            context={"first": answer.first},
        )
        return answer
