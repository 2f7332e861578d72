"""Where a wave is played: locust's runner, the users on it, and what they report."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Thread

from .answer import Answer, Json
from .crew import Alone, Crew, Workers  # first: it patches the interpreter for gevent
from .distribution import Distribution
from .lag import feel
from .metrics import HELD, Scrape
from .plan import Plan, Target, Wave
from .stream import Client
from .user import Entry, Job, Source

Emit = Callable[[Json], None]
_QUIET = 10.0  # seconds for a server to come to rest
_PATIENCE = 3600.0  # seconds for what must happen, or the run fails


def nothing(_: int) -> Job | None:
    return None


class Stage:
    """One wave after the other is played on it.

    Users are spawned by locust and leave when their source gives them nothing more, or when there
    are more than are wanted: a wave is over when all have gone, so no stream is cut off and no
    count is blurred. (Locust's own way to fewer users may take away more than it was told to.)
    """

    def __init__(self, plan: Plan, emit: Emit) -> None:
        self.plan = plan
        self.emit = emit
        self.source: Source = nothing
        self.wave: Wave = plan.waves[0]
        self.target: Target = plan.targets[0]
        self.present = 0
        self.wanted = 0
        self.leaving: set[int] = set()
        self.entered = 0
        self.ended = 0
        self.seen: Counter[int] = Counter()
        self.lag = Distribution()
        Thread(target=lambda: feel(lambda late: self.lag.add(late)), daemon=True).start()
        self.crew: Crew = Workers(self, plan.workers, plan.bind) if plan.workers else Alone(self)

    @contextmanager
    def play(self, wave: Wave) -> Iterator[None]:
        """Begins and ends a wave with the server at rest and its counters read."""
        self.wave, self.target = wave, self.plan.target(wave.target)
        self.source, self.entered, self.ended = nothing, 0, 0
        self.seen.clear()
        self.lag = Distribution()
        self.rest("begin")
        self.emit({"event": "wave", "name": wave.name, "at": time.monotonic()})
        yield
        self.empty()
        lag = {"mean": max(self.lag.mean or 0.0, self.crew.lag()), "worst": self.lag.high}
        self.emit({"event": "lag", "wave": wave.name, **lag})
        self.mark("end")
        self.rest("end")

    def mark(self, phase: str, **more: float) -> None:
        """Says that a part of the wave begins now."""
        at = time.monotonic()
        self.emit({"event": "mark", "wave": self.wave.name, "phase": phase, "at": at, **more})

    def tell(self, **figures: float | None) -> None:
        """Says what the wave itself has measured; None is what didn't happen."""
        self.emit({"event": "told", "wave": self.wave.name, "figures": figures})

    def fill(self, users: int) -> None:
        """So many users from now on: new ones are let in, or some leave after their answer."""
        more = users - self.present + len(self.leaving)
        expected = self.entered + max(more, 0)
        self.wanted = users
        if more > 0:
            self.crew.spawn(more)
        self.until(lambda: self.entered >= expected)

    def empty(self) -> None:
        """Gives nobody anything more to do and waits until all have gone."""
        self.source = nothing
        self.until(lambda: self.present == 0)

    def until(self, done: Callable[[], bool], timeout: float = _PATIENCE) -> None:
        """Waits for a condition; raises TimeoutError when it doesn't come true."""
        deadline = time.monotonic() + timeout
        while not done():
            self.crew.check()
            if time.monotonic() > deadline:
                raise TimeoutError(f"{self.wave.name}: nothing happened for {timeout:.0f} s")
            time.sleep(0.01)

    def enter(self) -> Entry:
        self.present += 1
        self.entered += 1
        return Entry(self.entered - 1, self.wave.name, self.target.url, self.target.api_key)

    def next(self, user: int) -> Job | None:
        if self.present - len(self.leaving) > self.wanted:
            self.leaving.add(user)
            return None
        return self.source(user)

    def leave(self, user: int) -> None:
        self.present -= 1
        self.leaving.discard(user)

    def saw(self, user: int) -> None:
        self.seen[user] += 1

    def record(self, answer: Answer) -> None:
        self.ended += 1
        self.emit({"event": "answer", **answer.as_json()})

    def rest(self, at: str) -> None:
        """Waits until the server is at rest, reads its counters, and says how long that took."""
        if not self.target.metrics:
            return
        began = time.monotonic()
        with Client(self.target.url, self.target.api_key, timeout=30) as client:
            before, text = None, ""
            while time.monotonic() - began < _QUIET:
                text = client.get("/metrics")[1].decode()
                # Engine and API write into one page at different moments: two equal readings.
                counted = counters(Scrape.parse(text))
                if idle(Scrape.parse(text)) and counted == before:
                    break
                before = counted
                time.sleep(0.02)
        took = time.monotonic() - began
        self.emit(
            {"event": "rest", "wave": self.wave.name, "at": at, "seconds": took, "text": text}
        )


def idle(scrape: Scrape) -> bool:
    """Nothing runs, nothing waits, nothing is held."""
    return not any(scrape.get(name, **labels) for name, labels in HELD)


def counters(scrape: Scrape) -> list[float | None]:
    names = ("requests_total", "generated_tokens_total", "reported_tokens_total")
    return [scrape.total(name) for name in names]
