"""One request in the engine: its choices, its deadlines, and how it ended."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from flatwake_service.engine.messages import SamplingParams, Submit
from flatwake_service.http.admission import Admission, Ticket
from flatwake_service.http.choice import Choice, Output
from flatwake_service.http.counters import Counters, Outcome
from flatwake_service.http.engine import Engine
from flatwake_service.http.errors import ApiError, Code
from flatwake_service.http.responses import Finish, Usage
from flatwake_service.http.sampling import for_choice
from flatwake_service.text import Tokenizer


@dataclass(frozen=True)
class Prompt:
    """Token ids, and how many may follow."""

    ids: tuple[int, ...]
    max_tokens: int


class Generation:
    """Runs from `submit` to `ended`; then `error` says whether it failed.

    It ends by its last choice, by an error, by a deadline, or by `cancel`; whatever comes first.
    From then on the engine holds none of its sequences.
    """

    def __init__(
        self,
        engine: Engine,
        admission: Admission,
        ticket: Ticket,
        counters: Counters,
        sampling: SamplingParams,
        *,
        arrival: float,
        request_timeout: float,
        queue_timeout: float,
        on_end: Callable[[Generation], None],
    ) -> None:
        self.engine = engine
        self.counters = counters
        self.sampling = sampling
        self.choices: list[Choice] = []
        self.prompt_tokens = 0
        self.error: ApiError | None = None
        self.started = False
        """Whether it left the queue."""
        self.ended = False
        self.outcome: Outcome = "stop"
        self._admission = admission
        self._ticket = ticket
        self._arrival = arrival
        self._request_timeout = request_timeout
        self._queue_timeout = queue_timeout
        self._on_end = on_end
        self._left = 0
        self._first_token = False
        self._timers: list[asyncio.TimerHandle] = []
        self._output: Output | None = None

    def submit(
        self,
        prompts: Sequence[Prompt],
        n: int,
        stop: Sequence[str],
        tokenizer: Tokenizer,
        output: Output,
        sequences: Callable[[], int],
    ) -> None:
        """Sends n sequences a prompt. `sequences` gives numbers that are used only once."""
        self._output = output
        self.prompt_tokens = sum(len(prompt.ids) for prompt in prompts)
        self._left = len(prompts) * n
        deadline = self._arrival + self._request_timeout
        self._set_timers(deadline)
        for number, prompt in enumerate(prompts):
            group = 0
            for index in range(n):
                sequence = sequences()
                group = group or sequence
                choice = Choice(
                    self,
                    output,
                    tokenizer,
                    index=number * n + index,
                    prompt=number,
                    sequence=sequence,
                    stop=stop,
                )
                self.choices.append(choice)
                self.engine.submit(
                    Submit(
                        sequence=sequence,
                        group=group,
                        ids=() if index else prompt.ids,
                        sampling=for_choice(self.sampling, index),
                        max_tokens=prompt.max_tokens,
                        deadline=deadline,
                    ),
                    choice,
                )

    def _set_timers(self, deadline: float) -> None:
        # The engine looks at the deadline between its steps; this holds during a long one, too.
        later = asyncio.get_running_loop().call_later
        self._timers = [
            later(deadline - time.monotonic(), self._request_late),
            later(self._queue_timeout, self._queue_late),
        ]

    def usage(self) -> Usage:
        generated = sum(choice.generated for choice in self.choices)
        return Usage(self.prompt_tokens, generated, self.prompt_tokens + generated)

    def cancel(self) -> None:
        """The client went away: the engine forgets it at once. No more is written."""
        self._end("cancelled")

    def fail(self, error: ApiError, outcome: Outcome = "error") -> None:
        """Ends it with an error, which the client will read."""
        if not self.ended:
            self.error = error
            self._end(outcome)
            self._wake()

    def release(self) -> None:
        """Lets go, once it has ended and been answered, of all that knows it in turn: a ring of
        objects would stay until a collection finds it, and old ones are rarely looked for.
        """
        self._output = None
        self._timers.clear()
        self.choices.clear()

    # What its choices report.

    def choice_started(self) -> None:
        self._admission.sequences += 1
        if not self.started:
            self.started = True
            self._ticket.start()
            self._timers[1].cancel()
            self.counters.queue.observe(time.monotonic() - self._arrival)
            self._wake()

    def choice_stopped_running(self) -> None:
        self._admission.sequences -= 1

    def first_token(self, moment: float) -> None:
        if not self._first_token:
            self._first_token = True
            self.counters.first_token.observe(max(0.0, moment - self._arrival))

    def choice_ended(self, finish: Finish) -> None:
        if finish == "length":
            self.outcome = "length"
        self._left -= 1
        if self._left == 0:
            self._end(self.outcome)
            self._wake()

    def choice_failed(self, finish: str) -> None:
        if finish == "timeout":
            self._request_late()
        else:
            self.fail(ApiError(Code.SEQUENCE_FAILED, f"the engine ended the sequence: {finish}"))

    def engine_failed(self, reason: str, message: str) -> None:
        self.fail(ApiError(Code.ENGINE_FAILED, f"the engine ended ({reason}): {message}"))

    def _queue_late(self) -> None:
        if self.started:
            return
        error = ApiError(
            Code.QUEUE_TIMEOUT,
            f"the request waited {self._queue_timeout:g} s for its turn; try again later",
            retry_after=self._admission.retry_after(),
        )
        self.fail(error, "timeout")

    def _request_late(self) -> None:
        seconds = f"{self._request_timeout:g} s"
        error = ApiError(
            Code.REQUEST_TIMEOUT,
            f"the request took longer than the server's limit of {seconds}; ask for fewer tokens",
            retry=False,
        )
        self.fail(error, "timeout")

    def _end(self, outcome: Outcome) -> None:
        if self.ended:
            return
        self.ended = True
        self.outcome = outcome
        for timer in self._timers:
            timer.cancel()
        for choice in self.choices:
            if not choice.ended:
                self.engine.cancel(choice.sequence)
                choice.abandon()
        self._ticket.leave()
        self.counters.requests[outcome] += 1
        self.counters.request.observe(time.monotonic() - self._arrival)
        self._on_end(self)

    def _wake(self) -> None:
        if self._output is not None:
            self._output.wake()
