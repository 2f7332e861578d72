"""Drives a scheduler against the fake device and checks every promise after every step."""

from __future__ import annotations

from dataclasses import dataclass, field

from fake_runner import FakeRunner, alone
from flatwake_service.engine.batch import Batch
from flatwake_service.engine.messages import SamplingParams, SequenceTokens, Submit
from flatwake_service.engine.scheduler import Scheduler

NEVER = 1e18


@dataclass
class Expected:
    """A sequence's tokens when it is alone, and what has been reported of it."""

    ids: list[int]
    finish: str
    output: list[int] = field(default_factory=list)
    ended: str | None = None
    starts: int = 0


class Driver:
    """A scheduler, a device and a clock that only `wait` moves."""

    def __init__(
        self,
        *,
        blocks: int,
        context: int,
        max_sequences: int = 4,
        prefill_tokens: int = 128,
        recurrent: bool = False,
    ) -> None:
        self.scheduler = Scheduler(
            blocks=blocks,
            slots=max_sequences,
            context=context,
            max_sequences=max_sequences,
            prefill_tokens=prefill_tokens,
            share_prompts=not recurrent,
        )
        self.runner = FakeRunner(
            context=self.scheduler.context,
            blocks=blocks,
            slots=max_sequences,
            recurrent=recurrent,
        )
        self.now = 0.0
        self.batches: list[Batch] = []
        self.followed: dict[int, Expected] = {}
        self.cancelled: set[int] = set()
        self.cancelled_in_flight = 0
        self._prefill_tokens = prefill_tokens
        self._next = 1

    def submit(
        self,
        prompt: list[int],
        *,
        max_tokens: int = 20,
        seed: int = 0,
        stop_ids: tuple[int, ...] = (),
        group: int | None = None,
        deadline: float = NEVER,
        brings: bool = True,
    ) -> int:
        """`brings`: whether the message has the prompt's ids, as a group's first must."""
        number, self._next = self._next, self._next + 1
        sampling = SamplingParams(temperature=1.0, seed=seed, stop_ids=stop_ids)
        message = Submit(
            number,
            number if group is None else group,
            tuple(prompt) if brings else (),
            sampling,
            max_tokens,
            deadline,
        )
        assert self.scheduler.submit(message) is None
        ids, finish = alone(tuple(prompt), sampling, max_tokens, self.scheduler.context)
        self.followed[number] = Expected(ids, finish)
        return number

    def cancel(self, number: int) -> None:
        self.scheduler.cancel(number)
        self.cancelled.add(number)
        self.scheduler.check()

    def wait(self, seconds: float) -> None:
        self.now += seconds
        for entry in self.scheduler.expire(self.now):
            assert (entry.ids, entry.finish) == ((), "timeout")
            self._take(entry)
        self.scheduler.check()

    def step(self, *, cancel_in_flight: int | None = None) -> bool:
        """One turn; False if there was nothing to do."""
        batch = self.scheduler.schedule()
        self.scheduler.check()
        self.scheduler.check_writes(batch)
        if batch.empty:
            assert self.scheduler.running == self.scheduler.waiting == 0, "stuck"
            return False
        self.batches.append(batch)
        self._check_batch(batch)
        for sequence in batch.taken:
            self.runner.take(sequence)
        self.runner.launch(batch)
        results = list(self.runner.read())
        if cancel_in_flight is not None:
            self.cancelled_in_flight += 1
            self.cancel(cancel_in_flight)
        for result in results:
            news = self.scheduler.commit(result)
            for number in news.started:
                self.followed[number].starts += 1
            for entry in news.entries:
                self._take(entry)
        self.scheduler.check()
        return True

    def finish(self, most: int = 10_000) -> None:
        """Run until idle, then compare everything with what it is alone."""
        while self.step():
            assert len(self.batches) < most, "no progress"
        for number, one in self.followed.items():
            assert one.ended is not None or number in self.cancelled, f"{number} never ended"
        assert self.scheduler.blocks.used == self.scheduler.slots.used == 0
        assert self.scheduler.totals.discarded <= self.cancelled_in_flight, "computed for nothing"

    @property
    def open(self) -> list[int]:
        return [n for n, one in self.followed.items() if not one.ended and n not in self.cancelled]

    def _take(self, entry: SequenceTokens) -> None:
        one = self.followed[entry.sequence]
        assert entry.sequence not in self.cancelled, "reported after its cancellation"
        assert one.ended is None, "reported after its end"
        assert not entry.ids or one.starts == 1, "a token of a sequence that never started"
        one.output += entry.ids
        assert one.output == one.ids[: len(one.output)], f"{entry.sequence}: differs from alone"
        one.ended = entry.finish
        if entry.finish in ("stop", "length"):
            assert one.output == one.ids
            assert entry.finish == one.finish

    def _check_batch(self, batch: Batch) -> None:
        numbers = [entry.sequence.number for entry in (*batch.decode, *batch.chunks)]
        assert len(numbers) == len(set(numbers)), "a sequence twice in one step"
        arrivals = [chunk.sequence.arrival for chunk in batch.chunks]
        assert arrivals == sorted(arrivals), "a younger prompt before an older one"
        assert sum(chunk.count for chunk in batch.chunks) <= self._prefill_tokens
        assert all(chunk.start % 64 == 0 for chunk in batch.chunks)
        for chunk in batch.chunks:
            prompt = chunk.sequence.prompt_length
            first = chunk.start + chunk.count == prompt and chunk.sequence.generated == 0
            assert chunk.samples == first, "a first token is chosen once"
        for entry in batch.decode:
            last = entry.start + entry.count == len(entry.sequence.ids)
            assert entry.samples == last
