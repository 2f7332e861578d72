"""A whole server over a fake engine, as a process.

What it is given: Settings' fields, and of the fake's own `pace`, `die_at` (the step after
which the engine ends), `fail` (its start fails), `raises` (its start raises that), `slow` (seconds
until it is ready) and `termination_log`.
"""

from __future__ import annotations

import asyncio
import builtins
import os
import sys
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import uvloop
from fake_engine import FakeEngine
from fake_text import language
from flatwake_service.engine.messages import Failed, Loading
from flatwake_service.http import listener as sockets
from flatwake_service.http import server
from flatwake_service.http.service import Service
from flatwake_service.http.settings import Settings


class MortalEngine(FakeEngine):
    die_at = 0

    def step(self) -> None:
        super().step()
        if self.die_at and self.steps >= self.die_at:
            self.die()


def main(given: dict[str, Any], log_file: str, told: Connection) -> None:
    """Tells the endpoint, then "ready"; what it logs goes to the file."""
    descriptor = os.open(log_file, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(descriptor, 2)
    sys.exit(_serve(given, told))


def _serve(given: dict[str, Any], told: Connection) -> int:
    pace = given.pop("pace", 0.0)
    die_at = given.pop("die_at", 0)
    fail = given.pop("fail", False)
    slow = given.pop("slow", 0.0)
    raises = given.pop("raises", None)
    log = Path(given.pop("termination_log", "/nonexistent"))
    settings = Settings(**{"served_name": "fake", "source": "test", "host": "127.0.0.1", **given})

    async def start() -> FakeEngine:
        if raises:
            raise getattr(builtins, raises)("no such thing")
        engine = MortalEngine(pace=pace, loads=False, max_sequences=settings.max_sequences)
        engine.die_at = die_at
        engine.progress = Loading("loading", 40, 100)
        if fail:
            engine.failure = Failed("ModelUnreadable", "tensor 7 is cut short")
            engine._is_ready.set()
        else:
            asyncio.get_running_loop().call_later(slow, engine.load)
        return engine

    listener = sockets.bind(settings.host, settings.port)
    told.send(sockets.endpoint(listener))
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(
            server.run(
                Service(settings),
                listener,
                asyncio.to_thread(language),
                start(),
                on_ready=lambda service: told.send("ready"),
                termination_log=log,
            )
        )
