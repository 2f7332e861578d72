"""How fast a runner is: decode at a fixed batch, prefill of one prompt, time by op."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator
from dataclasses import dataclass

from flatwake_kernels.declaration import LinearHandle
from flatwake_kernels.ops import BLOCK_TOKENS
from flatwake_kernels.plan import Plan

from flatwake_service.engine.batch import Batch, Chunk, DecodeEntry
from flatwake_service.engine.messages import SamplingParams
from flatwake_service.engine.runner import Runner
from flatwake_service.engine.sequence import Sequence

PROMPT_IDS = 1000
"""Prompts are made of ids below this: every vocabulary has them."""


@dataclass(frozen=True)
class Decode:
    """`step_seconds` is the median; `bytes` what a step had to move."""

    users: int
    depth: int
    step_seconds: float
    bytes: int

    @property
    def tokens_per_second(self) -> float:
        return self.users / self.step_seconds

    @property
    def bytes_per_second(self) -> float:
        return self.bytes / self.step_seconds


@dataclass(frozen=True)
class Prefill:
    """`seconds` until a prompt's first token, the median."""

    tokens: int
    seconds: float

    @property
    def tokens_per_second(self) -> float:
        return self.tokens / self.seconds


@dataclass(frozen=True)
class OpTime:
    """All calls of an op in one step. `weight_bytes` are read by its prepared layers."""

    name: str
    calls: int
    seconds: float
    weight_bytes: int


def measure_decode(runner: Runner, users: int, depth: int, steps: int) -> Decode:
    """Decode `users` sequences at once for `steps` steps, from `depth` positions on."""
    sequences = list(_sequences(runner, users, depth, depth + steps + 1))
    for sequence in sequences:
        _prefill(runner, sequence)
    times, moved = [], 0
    for step in range(steps):
        entries = tuple(DecodeEntry(s, len(s.ids) - 1, 1, samples=True) for s in sequences)
        began = time.perf_counter()
        runner.launch(Batch(step, entries, ()))
        for result in runner.read():
            moved = result.bytes
            for found in result.sampled:
                found.sequence.ids.append(found.id)
        times.append(time.perf_counter() - began)
    return Decode(users, depth, statistics.median(times), moved)


def measure_prefill(runner: Runner, tokens: int, rounds: int) -> Prefill:
    """Read one prompt of `tokens` tokens, `rounds` times."""
    times = []
    for _ in range(rounds):
        (sequence,) = _sequences(runner, 1, tokens, tokens + 1)
        began = time.perf_counter()
        _prefill(runner, sequence)
        times.append(time.perf_counter() - began)
    return Prefill(tokens, statistics.median(times))


def time_by_op(plan: Plan, rounds: int) -> list[OpTime]:
    """Median time of each op in a plan, the largest first. Every call is waited for."""
    traces = [plan.trace() for _ in range(rounds)]
    seconds = [statistics.median(column) for column in zip(*traces, strict=True)]
    found: dict[str, OpTime] = {}
    for op, spent in zip(plan.ops, seconds, strict=True):
        read = sum(v.bytes for v in op.values.values() if isinstance(v, LinearHandle))
        old = found.get(op.name, OpTime(op.name, 0, 0.0, 0))
        if op.name == "embedding":
            read = 0
        found[op.name] = OpTime(
            op.name, old.calls + 1, old.seconds + spent, old.weight_bytes + read
        )
    return sorted(found.values(), key=lambda t: -t.seconds)


def _sequences(runner: Runner, users: int, length: int, most: int) -> Iterator[Sequence]:
    """Sequences of `length` prompt ids with blocks for `most` positions, dealt from 1 on."""
    need = -(-most // BLOCK_TOKENS)
    if users > runner.slots or users * need > runner.blocks or most > runner.context:
        raise ValueError(
            f"{users} sequences of {most} tokens need {users * need} blocks; there are "
            f"{runner.blocks}, {runner.slots} slots and a context of {runner.context}"
        )
    for index in range(users):
        sequence = Sequence(
            number=index,
            group=index,
            prompt_length=length,
            ids=[(7 * i + 13 * index) % PROMPT_IDS for i in range(length)],
            sampling=SamplingParams(),
            max_tokens=most,
            deadline=0.0,
            queue_deadline=0.0,
            arrival=index,
            blocks=list(range(1 + index * need, 1 + (index + 1) * need)),
            slot=index + 1,
        )
        runner.take(sequence)
        yield sequence


def _prefill(runner: Runner, sequence: Sequence) -> None:
    length, most = sequence.prompt_length, runner.max_chunk
    for start in range(0, length, most):
        count = min(most, length - start)
        chunk = Chunk(sequence, start, count, samples=start + count == length)
        runner.launch(Batch(0, (), (chunk,)))
        for result in runner.read():
            sequence.ids += [found.id for found in result.sampled]
