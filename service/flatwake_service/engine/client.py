"""The API process's side of the engine: starts it, watches it, talks to it.

One client owns one engine child. Everything here runs on the event loop's thread; callbacks of a
sink are plain calls, so that a token costs no task switch.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Protocol

from flatwake_service.engine.config import EngineConfig
from flatwake_service.engine.messages import (
    Failed,
    Loading,
    SequenceTokens,
    Started,
    Stats,
    Submit,
)
from flatwake_service.errors import FlatwakeError


class Sink(Protocol):
    """Where a sequence's news go; called on the event loop's thread, never from `submit` itself.

    The last call is either `tokens` with an entry whose `finish` is set, or `failed`. Nothing is
    called after it, nor after `EngineClient.cancel`. A sink must not raise.
    """

    def started(self) -> None:
        """The sequence left the queue: its first prompt chunk ran. At most once."""

    def tokens(self, entry: SequenceTokens, stamp: float) -> None:
        """New tokens, its end, or both. `stamp`: CLOCK_MONOTONIC seconds when they were read."""

    def failed(self, reason: str, message: str) -> None:
        """The engine ended, or is being closed; `reason` is one of the manifest's closed list."""


class EngineEnded(FlatwakeError):
    """The engine ended before it was ready. `failed.reason` is of the manifest's closed list."""

    reason = "EngineFailed"

    def __init__(self, failed: Failed) -> None:
        super().__init__(failed.message)
        self.failed = failed


class EngineClient:
    """One engine child.

    Attributes:
        progress: the newest `Loading`; None before the first.
        started: what the engine said when it became ready; None before.
        stats: its newest values (zeros before the first).
        failure: why it ended, unless `close` ended it.
        ended: set once the child is gone, for whatever reason.
        pid: the child's.
    """

    progress: Loading | None
    started: Started | None
    stats: Stats
    failure: Failed | None
    ended: asyncio.Event
    pid: int

    @classmethod
    async def start(
        cls,
        config: EngineConfig,
        *,
        command: Sequence[str] | None = None,
        step_timeout: float = 60.0,
        start_timeout: float | None = None,
    ) -> EngineClient:
        """Spawns the child and returns at once; `ready` waits for it. Call it on the main thread:
        the kernel ends the child with the thread that made it.

        `config.socket` and `config.heartbeat` are filled in here (pass ""). `command` replaces
        `python -m flatwake_service.engine.worker`; the configuration's JSON is appended to it.
        `step_timeout`: seconds without a sign of life, once started, until the engine is killed
        as hung. `start_timeout`: seconds without progress while loading; None: unbounded.
        """
        raise NotImplementedError

    async def ready(self) -> Started:
        """Waits until the engine takes sequences.

        Raises:
            EngineEnded: it ended first.
        """
        raise NotImplementedError

    def submit(self, message: Submit, sink: Sink) -> None:
        """Sends a sequence; call it only after `ready`. If the engine has ended meanwhile, or
        doesn't read what it is sent, the sink hears it by `failed`, soon.
        """
        raise NotImplementedError

    def cancel(self, sequence: int) -> None:
        """Forgets a sequence; its sink isn't called again. Unknown and ended ones are ignored."""
        raise NotImplementedError

    def drain(self) -> None:
        """Tells the engine that nothing new comes."""
        raise NotImplementedError

    async def close(self, timeout: float = 5.0) -> None:
        """Ends the engine: asks it to, waits `timeout` seconds, kills it. Open sinks get `failed`.
        May be called twice, and after the engine ended.
        """
        raise NotImplementedError
