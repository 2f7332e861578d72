"""One sequence of a request: the engine's tokens in, text that may be sent out."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from flatwake_service.engine.messages import SequenceTokens, TokenLogprobs
from flatwake_service.http.logprobs import Scored
from flatwake_service.http.responses import Finish
from flatwake_service.text import Detokenizer, StopStrings, Tokenizer

if TYPE_CHECKING:
    from flatwake_service.http.generation import Generation


class Output(Protocol):
    """Where choices write to: an event stream, or a whole answer.

    Each text and each end is followed by `Choice.left` once it is out of this process's hands.
    """

    def text(self, choice: Choice, text: str, scored: Sequence[Scored], stamp: float) -> None:
        """Text that follows what was written before; log probabilities if they were wanted."""

    def end(self, choice: Choice, finish: Finish, stamp: float) -> None:
        """The choice is complete."""

    def wake(self) -> None:
        """Something else changed: the request started, failed, or ended."""


class Choice:
    """The engine client's sink for one sequence. Everything here runs a token at a time on the
    event loop, so it does no more than it must.
    """

    __slots__ = (
        "_detokenizer",
        "_generation",
        "_left",
        "_left_at",
        "_length",
        "_min_tokens",
        "_output",
        "_scored",
        "_sent",
        "_stop_ids",
        "_stops",
        "_wants_scores",
        "ended",
        "generated",
        "index",
        "prompt",
        "running",
        "sequence",
    )

    def __init__(
        self,
        generation: Generation,
        output: Output,
        tokenizer: Tokenizer,
        *,
        index: int,
        prompt: int,
        sequence: int,
        stop: Sequence[str],
    ) -> None:
        sampling = generation.sampling
        self._generation = generation
        self._output = output
        self._detokenizer = Detokenizer(tokenizer)
        self._stops = StopStrings(stop) if stop else None
        self._stop_ids = sampling.stop_ids
        self._min_tokens = sampling.min_tokens
        self._wants_scores = sampling.logprobs >= 0
        self._scored: deque[Scored] = deque()
        self._length = 0
        self._sent = 0
        self._left = 0
        self._left_at = 0.0
        self.index = index
        self.prompt = prompt
        self.sequence = sequence
        self.generated = 0
        self.running = False
        self.ended = False

    def started(self) -> None:
        self.running = True
        self._generation.choice_started()

    def tokens(self, entry: SequenceTokens, stamp: float) -> None:
        ids = entry.ids
        self.generated += len(ids)
        if entry.finish is None:
            self._advance(ids, entry.logprobs, stamp)
        else:
            self._finish(entry, stamp)

    def failed(self, reason: str, message: str) -> None:
        self._end()
        self._generation.engine_failed(reason, message)

    def left(self, moment: float) -> None:
        """What has been generated left for the client at this moment, CLOCK_MONOTONIC seconds:
        here its latency counts, and not where the engine read it, for a client can't have it
        sooner. Tokens that leave together share their time; behind the first one it is none.
        """
        count = self.generated - self._left
        if not count:
            return
        inter_token = self._generation.counters.inter_token
        if self._left:
            inter_token.observe((moment - self._left_at) / count, count)
        else:
            self._generation.first_token(moment)
            if count > 1:
                inter_token.observe(0.0, count - 1)
        self._left = self.generated
        self._left_at = moment

    def _advance(self, ids: Sequence[int], scores: Sequence[TokenLogprobs], stamp: float) -> bool:
        """Writes what these tokens complete; whether a stop string did and ended the choice."""
        text = self._score(ids, scores) if self._wants_scores else self._detokenizer.push(ids)
        return self._write(text, stamp)

    def _write(self, text: str, stamp: float) -> bool:
        stops = self._stops
        # A stop string counts from min_tokens on; what came before can't be part of one.
        if stops is not None and self.generated >= self._min_tokens:
            text = stops.push(text)
            if stops.found is not None:
                self._emit(text, stamp)
                self._generation.engine.cancel(self.sequence)
                self._end()
                self._output.end(self, "stop", stamp)
                self._generation.choice_ended("stop")
                return True
        if not text:
            return False
        if self._wants_scores:
            self._emit(text, stamp)
        else:
            self._output.text(self, text, (), stamp)
        return False

    def _finish(self, entry: SequenceTokens, stamp: float) -> None:
        finish, ids = entry.finish, entry.ids
        if finish == "stop" and ids and ids[-1] in self._stop_ids:
            ids = ids[:-1]
        if ids and self._advance(ids, entry.logprobs[: len(ids)], stamp):
            return
        if finish == "stop" or finish == "length":
            if self._write(self._detokenizer.flush(), stamp):
                return
            held = self._stops.flush() if self._stops is not None else ""
            if held or self._scored:
                self._emit(held, stamp)
            self._end()
            self._output.end(self, finish, stamp)
            self._generation.choice_ended(finish)
        else:
            self._end()
            self._generation.choice_failed(finish or "error")

    def _score(self, ids: Sequence[int], scores: Sequence[TokenLogprobs]) -> str:
        """Detokenises one by one, to know which text is whose."""
        parts = []
        for token, score in zip(ids, scores, strict=True):
            text = self._detokenizer.push((token,))
            end = self._length + len(text)
            self._scored.append(Scored(token, score, self._length, end))
            self._length = end
            parts.append(text)
        return "".join(parts)

    def _emit(self, text: str, stamp: float) -> None:
        """Writes text with the tokens that are complete in it."""
        self._sent += len(text)
        scored = []
        while self._scored and self._scored[0].end <= self._sent:
            scored.append(self._scored.popleft())
        if text or scored:
            self._output.text(self, text, scored, stamp)

    def abandon(self) -> None:
        """The request ended; the engine was told."""
        self._end()

    def _end(self) -> None:
        self.ended = True
        if self.running:
            self.running = False
            self._generation.choice_stopped_running()
