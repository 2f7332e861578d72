"""Our engine's logits: led along an oracle's tokens, or choosing its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from flatwake_service.engine import drive
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
        lead = [trace.lead for trace in group]
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
    sequences = drive.place(runner, prompts, tokens)
    first = []
    for sequence in sequences:
        drive.prefill(runner, sequence)
        first.append(runner.logits(1)[0])
    for position in range(tokens):
        if position:
            drive.decode(runner, sequences)
        logits = runner.logits(len(sequences)) if position else np.stack(first)
        heard(len(sequences))
        yield logits
        for index, sequence in enumerate(sequences):
            if lead is None or position >= len(lead[index]):
                sequence.ids.append(int(logits[index].argmax()))
            else:
                sequence.ids.append(lead[index][position])
