"""A worker: plays users for a run that goes on elsewhere. `python -m … HOST:PORT`.

Its clock is set against the run's by asking for the time; what its users see is told in the run's.
"""

from __future__ import annotations

import logging
import os
import sys
import time
from collections import Counter
from queue import Queue
from threading import Thread
from typing import Any
from uuid import uuid4

from locust.runners import WorkerRunner  # first: it patches the interpreter for gevent

from .answer import Answer
from .crew import Hall
from .distribution import Distribution
from .lag import feel
from .user import Entry, Job, StreamUser

_EXCHANGES = 10
_FLUSH = 0.02  # seconds that news of seen tokens may wait for more
_PATIENCE = 3600.0


class Remote:
    """The stage as a user of a worker has it."""

    def __init__(self, host: str, port: int) -> None:
        self._answers: dict[str, Queue[Any]] = {}
        self._seen: Counter[int] = Counter()
        self._wave = ""
        self._lag = Distribution()
        self.runner: WorkerRunner = Hall(self).create_worker_runner(host, port)
        self.runner.register_message("reply", self._replied)
        self.runner.register_message("users", self._spawn)
        self._ahead = self._compare_clocks()
        Thread(target=self._flush, name="seen", daemon=True).start()
        Thread(
            target=lambda: feel(lambda late: self._lag.add(late)), name="lag", daemon=True
        ).start()

    def enter(self) -> Entry:
        entry = Entry(**self._call("enter"), api_key=os.environ.get("OPENAI_API_KEY"))
        if entry.wave != self._wave:
            self._wave, self._lag = entry.wave, Distribution()
        return entry

    def next(self, user: int) -> Job | None:
        job = self._call("ask", user=user)
        return None if job is None else Job(**job)

    def saw(self, user: int) -> None:
        self._seen[user] += 1

    def record(self, answer: Answer) -> None:
        told = answer.as_json() | {"sent": answer.sent - self._ahead}
        # The engine's stamps are of another machine's clock, or can't be known to be of this one's.
        told["delays"] = []
        self.runner.send_message("record", {"answer": told, "lag": self._lag.mean or 0.0})

    def leave(self, user: int) -> None:
        self.runner.send_message("leave", {"user": user})

    def _call(self, kind: str, **data: object) -> Any:
        number = uuid4().hex
        waiting = self._answers[number] = Queue(1)
        self.runner.send_message(kind, {"id": number, **data})
        return waiting.get(timeout=_PATIENCE)

    def _replied(self, environment: object, msg: Any) -> None:
        self._answers.pop(msg.data["id"]).put(msg.data["value"])

    def _spawn(self, environment: object, msg: Any) -> None:
        self.runner.spawn_users({StreamUser.__name__: msg.data["count"]})

    def _compare_clocks(self) -> float:
        """Seconds by which this clock is ahead of the run's, by the quickest of some exchanges."""
        found: list[tuple[float, float]] = []
        for _ in range(_EXCHANGES):
            sent = time.monotonic()
            theirs = self._call("clock")
            took = time.monotonic() - sent
            found.append((took, sent + took / 2 - float(theirs)))
        return min(found)[1]

    def _flush(self) -> None:
        while True:
            time.sleep(_FLUSH)
            if self._seen:
                seen, self._seen = self._seen, Counter()
                self.runner.send_message("saw", {"seen": list(seen.items())})


def main() -> int:
    host, _, port = sys.argv[1].rpartition(":")
    logging.getLogger("locust").setLevel(logging.ERROR)
    Remote(host, int(port)).runner.greenlet.join()
    return 0


if __name__ == "__main__":
    sys.exit(main())
