"""Who plays the users: locust in this process, or in workers on any number of machines.

Importing this imports locust, which patches sockets and threads for gevent.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict
from itertools import cycle
from typing import TYPE_CHECKING, Any, Protocol

from locust.env import Environment
from locust.runners import STATE_MISSING, LocalRunner, MasterRunner

from .answer import Answer, Json
from .errors import LoadError
from .user import Call, StreamUser

if TYPE_CHECKING:
    from .stage import Stage

_USER = StreamUser.__name__
_JOIN = 600.0  # seconds that workers have to join
_LOST = -30  # seconds without a sign of a worker after which the run can't go on


class Crew(Protocol):
    """Spawns users, who come to the stage by themselves and leave it when they get no job."""

    def spawn(self, users: int) -> None:
        """So many more."""

    def check(self) -> None:
        """Raises LoadError when users are gone that will never leave the stage."""

    def lag(self) -> float:
        """The worst worker's mean lateness in this wave, in seconds; 0 in this process."""

    def quit(self) -> None: ...


class Hall(Environment):
    """Locust's environment, from which a user finds its stage."""

    def __init__(self, stage: Call) -> None:
        super().__init__(user_classes=[StreamUser])
        self.stage = stage


class Alone:
    """All users in this process."""

    def __init__(self, stage: Stage) -> None:
        self._runner: LocalRunner = Hall(stage).create_local_runner()

    def spawn(self, users: int) -> None:
        self._runner.spawn_users({_USER: users})

    def check(self) -> None: ...

    def lag(self) -> float:
        return 0.0

    def quit(self) -> None:
        self._runner.quit()


class Workers:
    """Users in workers, dealt out in turn; everything that a user says comes as a message.

    What comes, by a worker: `enter`, `ask`, `clock` (each with an `id`, and a `reply` goes back
    with it), `saw`, `record`, `leave`. What goes: `users`, how many more to play.
    """

    def __init__(self, stage: Stage, count: int, bind: str) -> None:
        host, _, port = bind.rpartition(":")
        logging.getLogger("locust").setLevel(logging.ERROR)
        self._stage = stage
        self._lags: dict[str, float] = {}
        self._runner: MasterRunner = Hall(stage).create_master_runner(host or "*", int(port))
        handlers: Mapping[str, Callable[[str, Json], Any]] = {
            "enter": self._enter,
            "ask": self._ask,
            "clock": lambda _, data: self._reply(_, data, time.monotonic()),
            "saw": self._saw,
            "record": self._record,
            "leave": self._leave,
        }
        for name, handle in handlers.items():
            # Only a user that asks may have to wait; everything else keeps its order.
            self._runner.register_message(name, _listener(handle), concurrent=name == "ask")
        self._joined = self._await(count)
        self._turn = cycle(self._joined)

    def _await(self, count: int) -> list[str]:
        deadline = time.monotonic() + _JOIN
        while len(self._runner.clients.ready) < count:
            if time.monotonic() > deadline:
                there = len(self._runner.clients.ready)
                raise LoadError(f"{there} of {count} workers have joined in {_JOIN:.0f} s")
            time.sleep(0.1)
        return sorted(node.id for node in self._runner.clients.ready)[:count]

    def spawn(self, users: int) -> None:
        for _ in range(users):
            self._runner.send_message("users", {"count": 1}, next(self._turn))

    def check(self) -> None:
        for name in self._joined:
            node = self._runner.clients.get(name)
            if node is None or (node.state == STATE_MISSING and node.heartbeat < _LOST):
                raise LoadError(f"worker {name} is gone, and with it the users that it played")

    def lag(self) -> float:
        lags, self._lags = self._lags, {}
        return max(lags.values(), default=0.0)

    def quit(self) -> None:
        self._runner.quit()

    # What workers say.

    def _reply(self, worker: str, data: Json, value: object) -> None:
        self._runner.send_message("reply", {"id": data["id"], "value": value}, worker)

    def _enter(self, worker: str, data: Json) -> None:
        entry = self._stage.enter()
        # A worker has a key of its own: none goes over the wire.
        self._reply(worker, data, {"number": entry.number, "wave": entry.wave, "url": entry.url})

    def _ask(self, worker: str, data: Json) -> None:
        job = self._stage.next(data["user"])
        self._reply(worker, data, None if job is None else asdict(job))

    def _saw(self, _: str, data: Json) -> None:
        for user, times in data["seen"]:
            self._stage.seen[user] += times

    def _record(self, worker: str, data: Json) -> None:
        self._lags[worker] = data["lag"]
        self._stage.record(Answer(**data["answer"]))

    def _leave(self, _: str, data: Json) -> None:
        self._stage.leave(data["user"])


def _listener(handle: Callable[[str, Json], Any]) -> Callable[..., None]:
    def listen(environment: Environment, msg: Any) -> None:
        handle(msg.node_id, msg.data)

    return listen
