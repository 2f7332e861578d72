"""A whole answer: choices write into memory, the client gets it when all have ended."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from flatwake_service.http.choice import Choice
from flatwake_service.http.generation import Generation
from flatwake_service.http.logprobs import Scored
from flatwake_service.http.responses import Finish, Usage
from flatwake_service.http.wire import Disconnected, Receive


class Answer:
    """What the choices wrote, by index."""

    def __init__(self, choices: int) -> None:
        self._texts: list[list[str]] = [[] for _ in range(choices)]
        self.scored: list[list[Scored]] = [[] for _ in range(choices)]
        self.finish: list[Finish | None] = [None] * choices
        self._changed = asyncio.Event()

    def text(self, choice: Choice, text: str, scored: Sequence[Scored], stamp: float) -> None:
        self._texts[choice.index].append(text)
        self.scored[choice.index].extend(scored)
        choice.left(stamp)

    def end(self, choice: Choice, finish: Finish, stamp: float) -> None:
        self.finish[choice.index] = finish
        choice.left(stamp)

    def wake(self) -> None:
        self._changed.set()

    def texts(self) -> list[str]:
        return ["".join(parts) for parts in self._texts]

    async def gather(self, generation: Generation, receive: Receive) -> Usage:
        """Waits until all have ended, and lets go of them.

        Raises:
            ApiError: the request failed.
            Disconnected: the client went away; its sequences are cancelled.
        """
        watch = asyncio.create_task(self._watch(generation, receive))
        try:
            while not generation.ended:
                await self._changed.wait()
                self._changed.clear()
        finally:
            watch.cancel()
            generation.cancel()
            usage = generation.usage()
            generation.release()
        if generation.error is not None:
            raise generation.error
        if generation.outcome == "cancelled":
            raise Disconnected
        return usage

    async def _watch(self, generation: Generation, receive: Receive) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        generation.cancel()
        self.wake()
