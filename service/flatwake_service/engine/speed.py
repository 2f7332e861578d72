"""How fast a runner is: decode at a fixed batch, prefill of one prompt, time by op."""

from __future__ import annotations

import statistics
import time
from dataclasses import dataclass

from flatwake_kernels.buffer import Buffer
from flatwake_kernels.declaration import LinearHandle, Op
from flatwake_kernels.plan import Plan

from flatwake_service.engine import drive
from flatwake_service.engine.runner import Runner

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
    """All calls of an op in one step, and what they had to do at least: bytes moved, and
    multiply-adds where there are matrices.
    """

    name: str
    calls: int
    seconds: float
    bytes: int
    products: int


def measure_decode(runner: Runner, users: int, depth: int, steps: int) -> Decode:
    """Decode `users` sequences at once for `steps` steps, from `depth` positions on."""
    prompts = [_prompt(index, depth) for index in range(users)]
    sequences = drive.place(runner, prompts, steps + 1)
    for sequence in sequences:
        drive.follow(drive.prefill(runner, sequence))
    times, moved = [], 0
    for _ in range(steps):
        began = time.perf_counter()
        results = drive.decode(runner, sequences)
        times.append(time.perf_counter() - began)
        drive.follow(results)
        moved = sum(result.bytes for result in results)
    return Decode(users, depth, statistics.median(times), moved)


def measure_prefill(runner: Runner, tokens: int, rounds: int) -> Prefill:
    """Read one prompt of `tokens` tokens, `rounds` times."""
    times = []
    for _ in range(rounds):
        (sequence,) = drive.place(runner, [_prompt(0, tokens)], 1)
        began = time.perf_counter()
        drive.prefill(runner, sequence)
        times.append(time.perf_counter() - began)
    return Prefill(tokens, statistics.median(times))


def time_by_op(plan: Plan, rounds: int) -> list[OpTime]:
    """Median time of each op in a plan, the largest first. Every call is waited for."""
    traces = [plan.trace() for _ in range(rounds)]
    seconds = [statistics.median(column) for column in zip(*traces, strict=True)]
    found: dict[str, OpTime] = {}
    for op, spent in zip(plan.ops, seconds, strict=True):
        moved, products = _work(op)
        old = found.get(op.name, OpTime(op.name, 0, 0.0, 0, 0))
        found[op.name] = OpTime(
            op.name,
            old.calls + 1,
            old.seconds + spent,
            old.bytes + moved,
            old.products + products,
        )
    return sorted(found.values(), key=lambda t: -t.seconds)


def _work(op: Op) -> tuple[int, int]:
    """Bytes that a call has to move, and its multiply-adds."""
    rows = getattr(op.params, "rows", 0)
    buffers = {n: v for n, v in op.values.items() if isinstance(v, Buffer)}
    # Of the splits' parts most stay unused.
    moved = sum(
        b.nbytes
        for n, b in buffers.items()
        if b.shape[:1] == (rows,) and not n.startswith("partial")
    )
    weights = [v for v in op.values.values() if isinstance(v, LinearHandle)]
    if weights and op.name != "embedding":
        return (
            moved + sum(w.bytes for w in weights),
            rows * sum(w.rows * w.columns for w in weights),
        )
    length, kv = op.values.get("row_length"), op.values.get("kv")
    if op.name.startswith("attention") and isinstance(length, Buffer) and isinstance(kv, Buffer):
        seen, most = int(length.read().sum()), int(length.read().max())
        position = kv.nbytes // (kv.shape[1] * kv.shape[3])
        # A chunk's rows share their keys; a step's rows are of as many sequences.
        read = position * (most if op.name == "attention_prefill" else seen)
        return moved + read, 2 * seen * op.params.heads * op.params.head_dim
    return moved, 0


def _prompt(index: int, length: int) -> list[int]:
    return [(7 * i + 13 * index) % PROMPT_IDS for i in range(length)]
