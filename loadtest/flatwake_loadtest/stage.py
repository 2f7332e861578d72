"""Where a wave is played: locust's runner, the users on it, and what they report."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Thread

from locust.env import Environment

from .distribution import Distribution
from .metrics import HELD, Scrape
from .plan import Plan, Target, Wave
from .stream import Answer, Client, Json
from .user import Job, Source, StreamUser

Emit = Callable[[Json], None]
_QUIET = 10.0  # seconds for a server to come to rest
_PULSE = 0.02
_PATIENCE = 3600.0  # seconds for what must happen, or the run fails


def nothing(_: int) -> Job | None:
    return None


class Theatre(Environment):
    """Locust's environment, from which a user finds its stage.

    A user that locust takes away (a falling number) finishes its answer first.
    """

    def __init__(self, stage: Stage) -> None:
        super().__init__(user_classes=[StreamUser], stop_timeout=_PATIENCE)
        self.stage = stage


class Stage:
    """One wave after the other is played on it.

    Users are spawned by locust and end when their source gives them nothing more: a wave is
    over when all have gone, so no stream is cut off and no count is blurred.
    """

    def __init__(self, plan: Plan, emit: Emit) -> None:
        self.plan = plan
        self.emit = emit
        self.environment = Theatre(self)
        self.runner = self.environment.create_local_runner()
        self.source: Source = nothing
        self.wave: Wave = plan.waves[0]
        self.target: Target = plan.targets[0]
        self.present = 0
        self.entered = 0
        self.ended = 0
        self.seen: Counter[int] = Counter()
        self.lag = Distribution()
        Thread(target=self._feel_lag, name="lag", daemon=True).start()

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
        lag = {"mean": self.lag.mean or 0.0, "worst": self.lag.high}
        self.emit({"event": "lag", "wave": wave.name, **lag})
        self.mark("end")
        self.rest("end")

    def _feel_lag(self) -> None:
        """How late this process comes to its turn: a starved client measures itself."""
        while True:
            due = time.monotonic() + _PULSE
            time.sleep(_PULSE)
            self.lag.add(time.monotonic() - due)

    def mark(self, phase: str, **more: float) -> None:
        """Says that a part of the wave begins now."""
        at = time.monotonic()
        self.emit({"event": "mark", "wave": self.wave.name, "phase": phase, "at": at, **more})

    def tell(self, **figures: float | None) -> None:
        """Says what the wave itself has measured; None is what didn't happen."""
        self.emit({"event": "told", "wave": self.wave.name, "figures": figures})

    def fill(self, users: int) -> None:
        """So many users from now on: new ones are let in, or the last ones leave."""
        expected = self.entered + max(users - self.present, 0)
        self.runner.start(users, spawn_rate=max(users, 1), wait=True)
        self.until(lambda: self.entered >= expected)

    def empty(self) -> None:
        """Gives nobody anything more to do and waits until all have gone."""
        self.source = nothing
        self.until(lambda: self.present == 0)
        self.runner.stop()

    def until(self, done: Callable[[], bool], timeout: float = _PATIENCE) -> None:
        """Waits for a condition; raises TimeoutError when it doesn't come true."""
        deadline = time.monotonic() + timeout
        while not done():
            if time.monotonic() > deadline:
                raise TimeoutError(f"{self.wave.name}: nothing happened for {timeout:.0f} s")
            time.sleep(0.01)

    def enter(self) -> int:
        """A new user's number in this wave."""
        self.present += 1
        self.entered += 1
        return self.entered - 1

    def leave(self) -> None:
        self.present -= 1

    def saw(self, user: int) -> None:
        self.seen[user] += 1

    def record(self, answer: Answer) -> None:
        answer.wave = self.wave.name
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
