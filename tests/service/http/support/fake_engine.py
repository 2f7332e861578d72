"""An engine without a model: it repeats the last words of a prompt, a byte a token.

The answer to a prompt that ends in `say WORDS.` (before a template's last tag) is WORDS, then the
end token; anything else is answered with `reply`. Deterministic, whatever the load.
"""

from __future__ import annotations

import asyncio
import os
import re
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from fake_text import EOS, SIZE
from flatwake_service.engine.client import EngineEnded, Sink
from flatwake_service.engine.messages import (
    Device,
    Failed,
    Loading,
    SequenceTokens,
    Started,
    Stats,
    Submit,
    TokenLogprobs,
)

REPLY = b"A computer is a machine that runs programs."


def answer(prompt: tuple[int, ...], reply: bytes = REPLY) -> bytes:
    text = bytes(token for token in prompt if token < 256)
    said = re.search(rb".*say (.*)\.(?:\[assistant\][a-z]*)?$", text, re.DOTALL)
    return said[1] if said else reply


@dataclass
class _Sequence:
    message: Submit
    sink: Sink
    words: bytes
    sent: int = 0
    started: bool = False

    def next(self) -> tuple[int, bool]:
        """The next token, and whether it is the last."""
        sampling = self.message.sampling
        ends = EOS in sampling.stop_ids and self.sent >= sampling.min_tokens
        if self.sent >= len(self.words) and ends:
            return EOS, True
        token = self.words[self.sent % len(self.words)] if self.words else 32
        self.sent += 1
        return token, token in sampling.stop_ids


@dataclass
class FakeEngine:
    """In-process; has `EngineClient`'s interface. `pace`: seconds a step takes.

    `hold()` stops it before its next step, `release()` lets it go on, `die()` ends it.
    """

    context: int = 512
    vocabulary: int = SIZE
    model_context: int = 0
    max_sequences: int = 8
    pace: float = 0.0
    loads: bool = True
    reply: bytes = REPLY
    scores: Callable[[int], float] = lambda token: -0.25
    progress: Loading | None = None
    started: Started | None = None
    stats: Stats = field(default_factory=Stats)
    failure: Failed | None = None
    pid: int = field(default_factory=os.getpid)

    def __post_init__(self) -> None:
        self.ended = asyncio.Event()
        self.submitted: list[Submit] = []
        self.cancelled: list[int] = []
        self.drained = False
        self.steps = 0
        self._open: dict[int, _Sequence] = {}
        self._waiting: deque[_Sequence] = deque()
        self._running: list[_Sequence] = []
        self._held = False
        self._prompt: tuple[int, ...] = ()
        self._stepping: asyncio.TimerHandle | asyncio.Handle | None = None
        self._is_ready = asyncio.Event()
        if self.loads:
            self.load()

    def load(self) -> None:
        self.started = Started(
            context=self.context,
            kv_tokens=self.context * self.max_sequences,
            vocabulary=self.vocabulary,
            backend="fake",
            device=Device("a fake", "none", 1 << 30),
            bandwidth_bytes=1e9,
            model_bytes=1 << 20,
            model_context=self.model_context or self.context,
        )
        self._is_ready.set()

    async def ready(self) -> Started:
        await self._is_ready.wait()
        if self.failure is not None:
            raise EngineEnded(self.failure)
        assert self.started is not None
        return self.started

    def submit(self, message: Submit, sink: Sink) -> None:
        self.submitted.append(message)
        self._prompt = message.ids or self._prompt
        sequence = _Sequence(message, sink, answer(self._prompt, self.reply))
        if self.failure is not None:
            failure = self.failure
            asyncio.get_running_loop().call_soon(sink.failed, failure.reason, failure.message)
            return
        self._open[message.sequence] = sequence
        self._waiting.append(sequence)
        self._schedule()

    def cancel(self, sequence: int) -> None:
        self.cancelled.append(sequence)
        gone = self._open.pop(sequence, None)
        if gone is not None:
            self._running = [s for s in self._running if s is not gone]
            self._waiting = deque(s for s in self._waiting if s is not gone)

    def drain(self) -> None:
        self.drained = True

    async def close(self, timeout: float = 5.0) -> None:
        self.ended.set()

    # What tests do to it.

    @property
    def open(self) -> int:
        return len(self._open)

    @property
    def running(self) -> int:
        return len(self._running)

    def hold(self) -> None:
        self._held = True

    def release(self) -> None:
        self._held = False
        self._schedule()

    def die(self, reason: str = "EngineFailed", message: str = "killed by signal 9") -> None:
        self.failure = Failed(reason, message)
        sequences, self._open = list(self._open.values()), {}
        self._running, self._waiting = [], deque()
        for sequence in sequences:
            sequence.sink.failed(reason, message)
        self._is_ready.set()
        self.ended.set()

    def step(self) -> None:
        """What a step of the real one does, seen from here."""
        self._stepping = None
        while self._waiting and len(self._running) < self.max_sequences:
            sequence = self._waiting.popleft()
            self._running.append(sequence)
            sequence.sink.started()
        self.steps += 1
        stamp = time.monotonic()
        for sequence in list(self._running):
            if sequence in self._running:
                self._advance(sequence, stamp)
        self._schedule()

    def _advance(self, sequence: _Sequence, stamp: float) -> None:
        token, last = sequence.next()
        message = sequence.message
        finish = "stop" if last else None
        if finish is None and sequence.sent >= message.max_tokens:
            finish = "length"
        scores: tuple[TokenLogprobs, ...] = ()
        if message.sampling.logprobs >= 0:
            top = range(message.sampling.logprobs)
            others = tuple((token + i) % 256 for i in top)
            scores = (TokenLogprobs(self.scores(token), others, tuple(-0.25 - i for i in top)),)
        if finish is not None:
            self._open.pop(message.sequence, None)
            self._running.remove(sequence)
        sequence.sink.tokens(SequenceTokens(message.sequence, (token,), scores, finish), stamp)

    def _schedule(self) -> None:
        if self._held or self._stepping is not None or not (self._running or self._waiting):
            return
        loop = asyncio.get_running_loop()
        if self.pace:
            self._stepping = loop.call_later(self.pace, self._step)
        else:
            self._stepping = loop.call_soon(self._step)

    def _step(self) -> None:
        self._stepping = None
        if not self._held:
            self.step()
