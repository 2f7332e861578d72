"""Our engine's logits: led along an oracle's tokens, or choosing its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
from flatwake_kernels.ops import BLOCK_TOKENS
from numpy.typing import NDArray

from flatwake_service.engine import sequence as engine
from flatwake_service.engine.batch import Batch, Chunk, DecodeEntry
from flatwake_service.engine.messages import SamplingParams
from flatwake_service.engine.runner import Runner
from flatwake_service.verify.trace import Trace, top_of

Heard = Callable[[int], None]
"""Called with the number of positions that were just done."""


def replay(
    runner: Runner, traces: Sequence[Trace], heard: Heard = lambda _: None
) -> list[NDArray[np.float32]]:
    """Our logits `[tokens, vocabulary]` at each of the traces' positions.

    Prompts go through prefill, tokens through decode, as many traces at once as there are slots.
    """
    found: list[NDArray[np.float32]] = []
    for start in range(0, len(traces), runner.slots):
        group = traces[start : start + runner.slots]
        lead = [trace.tokens for trace in group]
        rows = list(_run(runner, [t.prompt for t in group], lead, max(map(len, lead)), heard))
        for index, trace in enumerate(group):
            found.append(np.stack([row[index] for row in rows[: len(trace.tokens)]]))
    return found


def generate(
    runner: Runner, prompts: Sequence[Sequence[int]], tokens: int, heard: Heard = lambda _: None
) -> list[Trace]:
    """Our own greedy traces, the engine as its own oracle."""
    traces: list[Trace] = []
    for start in range(0, len(prompts), runner.slots):
        group = prompts[start : start + runner.slots]
        rows = list(_run(runner, group, None, tokens, heard))
        for index, prompt in enumerate(group):
            tops = [top_of(row[index]) for row in rows]
            chosen = tuple(int(ids[0]) for ids, _ in tops)
            ids = np.stack([ids for ids, _ in tops])
            traces.append(Trace(tuple(prompt), chosen, ids, np.stack([v for _, v in tops])))
    return traces


def _run(
    runner: Runner,
    prompts: Sequence[Sequence[int]],
    lead: Sequence[Sequence[int]] | None,
    tokens: int,
    heard: Heard,
) -> Iterator[NDArray[np.float32]]:
    """Logits of all sequences, `[sequences, vocabulary]`, for each of `tokens` positions."""
    sequences = _place(runner, prompts, tokens)
    first = np.stack([_prefill(runner, s) for s in sequences])
    for position in range(tokens):
        logits = first if position == 0 else _decode(runner, sequences)
        heard(len(sequences))
        yield logits
        for index, sequence in enumerate(sequences):
            if lead is None or position >= len(lead[index]):
                sequence.ids.append(int(logits[index].argmax()))
            else:
                sequence.ids.append(lead[index][position])


def _place(runner: Runner, prompts: Sequence[Sequence[int]], tokens: int) -> list[engine.Sequence]:
    """Sequences with blocks of their own, dealt from 1 on."""
    placed, block = [], 1
    for index, prompt in enumerate(prompts):
        need = -(-(len(prompt) + tokens) // BLOCK_TOKENS)
        sequence = engine.Sequence(
            number=index, group=index, prompt_length=len(prompt), ids=list(prompt),
            sampling=SamplingParams(), max_tokens=tokens, deadline=0.0, queue_deadline=0.0,
            arrival=index, blocks=list(range(block, block + need)), slot=index + 1,
        )  # fmt: skip
        block += need
        assert block - 1 <= runner.blocks, "the pool holds all of the group"
        runner.take(sequence)
        placed.append(sequence)
    return placed


def _prefill(runner: Runner, sequence: engine.Sequence) -> NDArray[np.float32]:
    length, most = sequence.prompt_length, runner.max_chunk
    for start in range(0, length, most):
        count = min(most, length - start)
        chunk = Chunk(sequence, start, count, samples=start + count == length)
        runner.launch(Batch(0, (), (chunk,)))
        list(runner.read())
    logits: NDArray[np.float32] = runner.logits(1)[0]
    return logits


def _decode(runner: Runner, sequences: Sequence[engine.Sequence]) -> NDArray[np.float32]:
    entries = tuple(DecodeEntry(s, len(s.ids) - 1, 1, samples=True) for s in sequences)
    runner.launch(Batch(0, entries, ()))
    list(runner.read())
    return runner.logits(len(sequences))
