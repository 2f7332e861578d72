"""A device in pure Python whose tokens betray every mistake in positions, tables, slots or replay.

What a position leaves in its block is a hash of the whole history before it, read back through the
block table, so a row that sees anything but its own sequence's past goes astray. The hash tells
prefilled from decoded positions, as the bits of real kernels do. Every row also looks at all of
its history and compares it with what it should be.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from flatwake_kernels.ops import BLOCK_TOKENS
from flatwake_service.engine.batch import Batch, Chunk, DecodeEntry, Result, Sampled
from flatwake_service.engine.messages import Device, SamplingParams, TokenLogprobs
from flatwake_service.engine.sequence import Sequence

VOCABULARY = 97
_MASK = (1 << 64) - 1
_PREFILLED, _DECODED = 1, 2


def _mix(history: int, token: int, kind: int) -> int:
    value = (history ^ (token * 4 + kind)) * 0x9E3779B97F4A7C15 & _MASK
    return value ^ value >> 29


def _choose(history: int, seed: int) -> int:
    return (_mix(history, seed, 3) >> 7) % VOCABULARY


def histories(ids: list[int], prompt_length: int) -> list[int]:
    """What each position of a sequence should leave behind."""
    chain, history = [], 0
    for position, token in enumerate(ids):
        history = _mix(history, token, _PREFILLED if position < prompt_length else _DECODED)
        chain.append(history)
    return chain


def alone(
    prompt: tuple[int, ...], sampling: SamplingParams, max_tokens: int, context: int
) -> tuple[list[int], str]:
    """The tokens of a sequence that nobody disturbs, and how it ends."""
    history, output = histories(list(prompt), len(prompt))[-1], []
    while True:
        token = _choose(history, sampling.seed)
        output.append(token)
        if token in sampling.stop_ids:
            return output, "stop"
        if len(output) == max_tokens or len(prompt) + len(output) == context:
            return output, "length"
        history = _mix(history, token, _DECODED)


class FakeRunner:
    """A StepRunner. `pace` is called before each part of a step, to hold it up."""

    def __init__(
        self,
        *,
        context: int,
        blocks: int,
        slots: int,
        recurrent: bool = False,
        pace: Callable[[Batch], None] = lambda batch: None,
    ) -> None:
        self.context, self.blocks, self.slots = context, blocks, slots
        self.vocabulary = VOCABULARY
        self.recurrent = recurrent
        self.device = Device("fake", "none", 0)
        self.bandwidth_bytes, self.model_bytes, self.model_context = 1e9, 4096, context
        self.graph_replays = self.graph_captures = 0
        self._pace = pace
        self._kv: dict[tuple[int, int], int] = {}
        self._seeds: dict[int, int] = {}
        self._states: dict[int, tuple[int, int]] = {}
        self._batch: Batch | None = None

    def take(self, taken: Sequence) -> None:
        self._seeds[taken.slot] = taken.sampling.seed
        self._states[taken.slot] = (0, 0)

    def launch(self, batch: Batch) -> None:
        assert self._batch is None, "one step at a time"
        assert not batch.empty
        self._batch = batch

    def read(self) -> Iterator[Result]:
        batch, self._batch = self._batch, None
        assert batch is not None
        if batch.decode:
            self._pace(batch)
            found = [self._run(entry, _DECODED) for entry in batch.decode]
            yield Result(batch.decode, tuple(s for s in found if s), 0.001, 1000)
        for chunk in batch.chunks:
            self._pace(batch)
            one = self._run(chunk, _PREFILLED)
            yield Result((chunk,), (one,) if one else (), 0.002, 2000)

    def kv_touched_bytes(self) -> int:
        return len({block for block, _ in self._kv}) * BLOCK_TOKENS

    def device_bytes(self) -> int:
        return 0

    def _run(self, entry: DecodeEntry | Chunk, kind: int) -> Sampled | None:
        sequence, end = entry.sequence, entry.start + entry.count
        assert end <= self.context, "a position beyond the context"
        expected = histories(sequence.ids, sequence.prompt_length)
        history = self._seen(sequence, entry.start, expected)
        for position in range(entry.start, end):
            history = _mix(history, sequence.ids[position], kind)
            self._kv[_place(sequence, position)] = history
            assert history == expected[position], f"sequence {sequence.number}, {position}: astray"
        if self.recurrent:
            assert self._states[sequence.slot] == (entry.start, self._before(expected, entry.start))
            self._states[sequence.slot] = (end, history)
        if not entry.samples:
            return None
        token = _choose(history, self._seeds[sequence.slot])
        wanted = sequence.sampling.logprobs
        logprobs = TokenLogprobs(-0.5, (token,), (-0.5,)) if wanted >= 0 else None
        return Sampled(sequence, token, logprobs)

    def _seen(self, sequence: Sequence, start: int, expected: list[int]) -> int:
        """The last history before `start`, after a look at all of them through the block table."""
        for position in range(start):
            seen = self._kv.get(_place(sequence, position))
            assert seen == expected[position], f"sequence {sequence.number} sees another's KV"
        return self._before(expected, start)

    @staticmethod
    def _before(expected: list[int], start: int) -> int:
        return expected[start - 1] if start else 0


def _place(sequence: Sequence, position: int) -> tuple[int, int]:
    block = sequence.blocks[position // BLOCK_TOKENS]
    assert block > 0, "block 0 is padding's"
    return block, position % BLOCK_TOKENS
