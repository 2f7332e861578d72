"""Starts real engine processes over the fake device, and follows their sequences."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import msgspec
import uvloop
from fake_worker import Behaviour
from flatwake_service.engine.client import EngineClient
from flatwake_service.engine.config import EngineConfig
from flatwake_service.engine.messages import SamplingParams, SequenceTokens, Submit

COMMAND = [sys.executable, str(Path(__file__).with_name("fake_worker.py"))]
NEVER = 1e18


def fake_config(**settings: object) -> EngineConfig:
    given = {"model": "none", "backend": "reference", "check_invariants": True, **settings}
    return msgspec.convert(given, EngineConfig)


def submit_message(
    number: int,
    prompt: list[int],
    *,
    max_tokens: int = 10,
    seed: int = 0,
    deadline: float = NEVER,
) -> Submit:
    sampling = SamplingParams(temperature=1.0, seed=seed)
    return Submit(number, number, tuple(prompt), sampling, max_tokens, deadline)


class Follower:
    """A sink that keeps everything, and sets `changed` at each call."""

    def __init__(self) -> None:
        self.ids: list[int] = []
        self.stamps: list[float] = []
        self.finish: str | None = None
        self.failure: tuple[str, str] | None = None
        self.starts = 0
        self._changed = asyncio.Event()

    @property
    def ended(self) -> bool:
        return self.finish is not None or self.failure is not None

    def started(self) -> None:
        self.starts += 1
        self._changed.set()

    def tokens(self, entry: SequenceTokens, stamp: float) -> None:
        assert not self.ended, "called after its end"
        self.ids += entry.ids
        self.stamps.append(stamp)
        self.finish = entry.finish
        self._changed.set()

    def failed(self, reason: str, message: str) -> None:
        assert not self.ended, "called after its end"
        self.failure = (reason, message)
        self._changed.set()

    async def until(self, condition: Callable[[Follower], object]) -> None:
        while not condition(self):
            self._changed.clear()
            await self._changed.wait()

    async def over(self) -> None:
        await self.until(lambda one: one.ended)


async def eventually(condition: Callable[[], object]) -> None:
    """Wait for what nobody announces; the test's own time limit bounds it."""
    while not condition():
        await asyncio.sleep(0.01)


@contextlib.asynccontextmanager
async def fake_engine(
    config: EngineConfig | None = None,
    *,
    behaviour: Behaviour | None = None,
    step_timeout: float = 60.0,
    start_timeout: float | None = None,
) -> AsyncIterator[EngineClient]:
    """A client whose child runs the fake device; closed, and certainly gone, at the end."""
    document = msgspec.json.encode(behaviour or Behaviour()).decode()
    client = await EngineClient.start(
        config or fake_config(),
        command=["env", f"FLATWAKE_FAKE={document}", *COMMAND],
        step_timeout=step_timeout,
        start_timeout=start_timeout,
    )
    try:
        yield client
    finally:
        await client.close()


def run(coroutine: Awaitable[None], seconds: float = 60.0, *, plain: bool = False) -> None:
    """Run a test's coroutine on the loop that serves, or on asyncio's own; bounded."""

    async def bounded() -> None:
        async with asyncio.timeout(seconds):
            await coroutine

    with asyncio.Runner(loop_factory=None if plain else uvloop.new_event_loop) as runner:
        runner.run(bounded())
