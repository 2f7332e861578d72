"""What the HTTP layer needs of the engine: `EngineClient` has it, and so have tests' engines."""

from __future__ import annotations

import asyncio
from typing import Protocol

from flatwake_service.engine.client import EngineClient, EngineEnded, Sink
from flatwake_service.engine.messages import Failed, Loading, Started, Stats, Submit

__all__ = ["Engine", "EngineClient", "EngineEnded", "Sink"]


class Engine(Protocol):
    """See `engine.client.EngineClient`."""

    @property
    def progress(self) -> Loading | None: ...

    @property
    def started(self) -> Started | None: ...

    @property
    def stats(self) -> Stats: ...

    @property
    def failure(self) -> Failed | None: ...

    @property
    def ended(self) -> asyncio.Event: ...

    @property
    def pid(self) -> int: ...

    async def ready(self) -> Started: ...

    def submit(self, message: Submit, sink: Sink) -> None: ...

    def cancel(self, sequence: int) -> None: ...

    def drain(self) -> None: ...

    async def close(self, timeout: float = 5.0) -> None: ...
