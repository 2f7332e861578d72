"""Drive a runner by hand, without a scheduler: sequences that all fit, one step after another.

Benchmarks and the exactness gate need a runner alone; a server never does.
"""

from __future__ import annotations

from collections.abc import Sequence as Items

from flatwake_kernels.ops import BLOCK_TOKENS

from flatwake_service.engine.batch import Batch, Chunk, DecodeEntry, Result
from flatwake_service.engine.messages import SamplingParams
from flatwake_service.engine.runner import Runner
from flatwake_service.engine.sequence import Sequence


def place(runner: Runner, prompts: Items[Items[int]], room: int) -> list[Sequence]:
    """Greedy sequences with `room` positions after their prompts, blocks dealt from 1 on.

    Raises:
        ValueError: the runner has not as many blocks, slots or positions.
    """
    placed, block = [], 1
    for index, prompt in enumerate(prompts):
        most = len(prompt) + room
        need = -(-most // BLOCK_TOKENS)
        if index >= runner.slots or block + need > runner.blocks + 1 or most > runner.context:
            raise ValueError(
                f"{len(prompts)} sequences of {most} tokens don't fit: there are {runner.slots} "
                f"slots, {runner.blocks} blocks and a context of {runner.context}"
            )
        sequence = Sequence(
            number=index,
            group=index,
            prompt_length=len(prompt),
            ids=list(prompt),
            sampling=SamplingParams(),
            max_tokens=room,
            deadline=0.0,
            arrival=index,
            blocks=list(range(block, block + need)),
            slot=index + 1,
        )
        block += need
        runner.take(sequence)
        placed.append(sequence)
    return placed


def prefill(runner: Runner, sequence: Sequence) -> list[Result]:
    """Read a sequence's prompt, chunk by chunk; the last result holds its first token."""
    results: list[Result] = []
    length, most = sequence.prompt_length, runner.max_chunk
    for start in range(0, length, most):
        count = min(most, length - start)
        chunk = Chunk(sequence, start, count, samples=start + count == length)
        runner.launch(Batch(0, (), (chunk,)))
        results += runner.read()
    return results


def decode(runner: Runner, sequences: Items[Sequence]) -> list[Result]:
    """One step of all sequences, from each one's last token."""
    entries = tuple(DecodeEntry(s, len(s.ids) - 1, 1, samples=True) for s in sequences)
    runner.launch(Batch(0, entries, ()))
    return list(runner.read())


def follow(results: Items[Result]) -> None:
    """Append what was sampled to its sequences."""
    for result in results:
        for found in result.sampled:
            found.sequence.ids.append(found.id)
