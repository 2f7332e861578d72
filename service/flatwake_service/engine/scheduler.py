"""The scheduler: which rows a step computes, and who holds which blocks.

Pure bookkeeping: it touches no clock, device or socket. `waiting` and `running` are both in order
of arrival, and everyone running arrived before everyone waiting: admission takes the oldest, and
preemption gives back the youngest.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field

from flatwake_kernels.ops import BLOCK_TOKENS

from flatwake_service.engine.batch import Batch, Chunk, DecodeEntry, Result, Sampled
from flatwake_service.engine.blocks import BlockPool, blocks_for
from flatwake_service.engine.interface import row_buckets
from flatwake_service.engine.messages import FinishReason, SequenceTokens, Submit
from flatwake_service.engine.sequence import CHUNK_TOKENS, Sequence
from flatwake_service.engine.sharing import shared_blocks, shares_more_soon
from flatwake_service.engine.slots import SlotPool


@dataclass
class Totals:
    """Counts since start. generated = reported + discarded."""

    prompt: int = 0
    generated: int = 0
    reported: int = 0
    discarded: int = 0
    preemptions: int = 0


@dataclass
class News:
    """What is to be reported: tokens and ends, and the sequences that left the queue."""

    entries: list[SequenceTokens] = field(default_factory=list)
    started: list[int] = field(default_factory=list)


class Scheduler:
    """Owns every sequence from `submit` to its end, with its blocks and its slot.

    `context` tokens at most a sequence, prompt and generated together. `share_prompts` lets the
    choices of a group hold the same blocks of their prompt, which needs a model without state.
    """

    def __init__(
        self,
        *,
        blocks: int,
        slots: int,
        context: int,
        max_sequences: int,
        prefill_tokens: int,
        share_prompts: bool = False,
    ) -> None:
        assert prefill_tokens > 0, "no prompt could ever be prefilled"
        assert prefill_tokens % CHUNK_TOKENS == 0, f"chunks are multiples of {CHUNK_TOKENS}"
        self.blocks = BlockPool(blocks)
        self.slots = SlotPool(min(slots, max_sequences))
        # A sequence alone may have the whole pool and no more.
        self.context = min(context, blocks * BLOCK_TOKENS)
        self.totals = Totals()
        self._prefill_tokens = prefill_tokens
        self._max_rows = row_buckets(max_sequences)[-1]
        self._share_prompts = share_prompts
        self._sequences: dict[int, Sequence] = {}
        self._waiting: deque[Sequence] = deque()
        self._running: list[Sequence] = []
        self._arrivals = 0
        self._step = 0
        self._soonest = math.inf
        self._prompt: tuple[int, tuple[int, ...]] = (0, ())
        """The newest group and its ids, for those of its choices that bring none."""

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    @property
    def running(self) -> int:
        return len(self._running)

    def submit(self, message: Submit) -> SequenceTokens | None:
        """Queue a sequence; its end, if there is nothing to generate.

        The API process has refused what can't be served, so a prompt that gets here and is empty
        or leaves no room is a fault of ours, which must harm no other request.
        """
        assert message.sequence not in self._sequences, f"sequence {message.sequence} is there"
        if message.ids:
            self._prompt = message.group, message.ids
        group, ids = self._prompt
        if group != message.group or not 0 < len(ids) < self.context:
            return SequenceTokens(message.sequence, (), finish="error")
        if message.max_tokens <= 0:
            return SequenceTokens(message.sequence, (), finish="length")
        sequence = Sequence(
            number=message.sequence,
            group=message.group,
            prompt_length=len(ids),
            ids=list(ids),
            sampling=message.sampling,
            max_tokens=message.max_tokens,
            deadline=message.deadline,
            arrival=self._arrivals,
        )
        self._arrivals += 1
        self._sequences[sequence.number] = sequence
        self._waiting.append(sequence)
        self._soonest = min(self._soonest, sequence.deadline)
        return None

    def cancel(self, number: int) -> None:
        """Forget a sequence, wherever it is; its blocks and slot are free at once."""
        sequence = self._sequences.get(number)
        if sequence is not None:
            self._end(sequence)

    def expire(self, now: float) -> list[SequenceTokens]:
        """End the sequences whose deadline has passed."""
        if now < self._soonest:
            return []
        late = [sequence for sequence in self._sequences.values() if sequence.deadline <= now]
        for sequence in late:
            self._end(sequence)
        self._soonest = min((each.deadline for each in self._sequences.values()), default=math.inf)
        return [SequenceTokens(sequence.number, (), finish="timeout") for sequence in late]

    def schedule(self) -> Batch:
        """Decide the next step; empty if nobody is there."""
        decode = self._decode_rows()
        chunks, taken = self._chunks()
        batch = Batch(self._step + 1, tuple(decode), tuple(chunks), tuple(taken))
        if not batch.empty:
            self._step += 1
        return batch

    def commit(self, result: Result) -> News:
        """Take in one part of a step."""
        news = News()
        for entry in result.entries:
            sequence = entry.sequence
            if sequence.slot and sequence.computed == entry.start:
                sequence.computed += entry.count
                if not sequence.started:
                    sequence.started = True
                    news.started.append(sequence.number)
        for sampled in result.sampled:
            self.totals.generated += 1
            sequence = sampled.sequence
            # It may have ended, or lost its blocks, since the step was launched.
            if sequence.slot and sequence.computed == len(sequence.ids):
                news.entries.append(self._append(sampled))
            else:
                self.totals.discarded += 1
        return news

    def check(self) -> None:
        """Every invariant of the state between two steps."""
        running, waiting = self._running, self._waiting
        order = [sequence.arrival for sequence in (*running, *waiting)]
        assert order == sorted(set(order)), f"out of order of arrival: {order}"
        everyone = {sequence.number: sequence for sequence in (*running, *waiting)}
        assert everyone == self._sequences, "a sequence is neither running nor waiting"
        self.blocks.check(sequence.blocks for sequence in running)
        self.slots.check(sequence.slot for sequence in running)
        for sequence in running:
            length = len(sequence.ids)
            assert 0 <= sequence.computed < length <= self.context, f"{sequence.number}: lengths"
            assert sequence.computed <= len(sequence.blocks) * BLOCK_TOKENS, "unbacked positions"
            assert len(sequence.blocks) <= blocks_for(self.context), "a table beyond the context"
        for sequence in waiting:
            assert not sequence.blocks, "a waiting sequence holds blocks"
            assert (sequence.slot, sequence.computed) == (0, 0), "a waiting sequence holds state"
        for sequence in self._sequences.values():
            assert sequence.reported == sequence.generated, "a token was kept back"
        totals = self.totals
        assert totals.generated == totals.reported + totals.discarded, f"{totals} don't add up"
        if not self._sequences:
            assert self.blocks.used == self.slots.used == 0, "idle, but not empty"

    def check_writes(self, batch: Batch) -> None:
        """What a step is about to write is backed by blocks that one sequence alone holds."""
        entries: list[DecodeEntry | Chunk] = [*batch.decode, *batch.chunks]
        assert sum(entry.count for entry in batch.decode) <= self._max_rows, "too many rows"
        assert sum(entry.count for entry in batch.chunks) <= self._prefill_tokens, "a long step"
        for entry in entries:
            sequence, end = entry.sequence, entry.start + entry.count
            assert entry.count > 0, "an empty entry"
            assert sequence.slot > 0, "a row of a sequence that holds nothing"
            assert end <= min(len(sequence.ids), self.context), "a row beyond what is known"
            written = sequence.blocks[entry.start // BLOCK_TOKENS : blocks_for(end)]
            assert len(written) == blocks_for(end) - entry.start // BLOCK_TOKENS, "no block"
            assert all(self.blocks.count(block) == 1 for block in written), "a shared block"

    def _decode_rows(self) -> list[DecodeEntry]:
        """A row for every sequence past its prompt; rows left over speed replays up."""
        for sequence in self._running.copy():
            if sequence.slot and not sequence.prefilling:
                self._grow(sequence)
        ready = [sequence for sequence in self._running if not sequence.prefilling]
        self._grow_early(ready)
        spare = self._max_rows - len(ready)
        entries = []
        for sequence in ready:
            start = sequence.computed
            count = 1 + min(spare, len(sequence.ids) - 1 - start)
            spare -= count - 1
            entries.append(DecodeEntry(sequence, start, count, start + count == len(sequence.ids)))
        return entries

    def _chunks(self) -> tuple[list[Chunk], list[Sequence]]:
        """The oldest prompts, as much of them as a step may take; and who was admitted for it."""
        chunks: list[Chunk] = []
        taken: list[Sequence] = []
        budget = self._prefill_tokens
        for sequence in self._running:
            if sequence.prefilling:
                budget -= _cut(sequence, budget, chunks)
        while self._waiting:
            sequence = self._waiting[0]
            shared = shared_blocks(sequence, self._running) if self._share_prompts else []
            start = len(shared) * BLOCK_TOKENS
            if budget < min(sequence.prompt_length - start, CHUNK_TOKENS):
                break
            if not self._fits(sequence, len(shared)):
                break
            if self._share_prompts and shares_more_soon(sequence, chunks):
                break
            self._admit(sequence, shared)
            taken.append(sequence)
            budget -= _cut(sequence, budget, chunks)
        return chunks, taken

    def _fits(self, sequence: Sequence, shared: int) -> bool:
        """Blocks for all that is known and one more, so that it isn't preempted at once."""
        need = min(blocks_for(len(sequence.ids)) + 1, self.blocks.total) - shared
        return self.slots.free > 0 and self.blocks.free >= need

    def _admit(self, sequence: Sequence, shared: list[int]) -> None:
        assert sequence is self._waiting.popleft()
        self._running.append(sequence)
        for block in shared:
            self.blocks.share(block)
        fresh = blocks_for(len(sequence.ids)) - len(shared)
        sequence.blocks = [*shared, *(self.blocks.take() for _ in range(fresh))]
        sequence.slot = self.slots.take()
        sequence.computed = len(shared) * BLOCK_TOKENS

    def _grow(self, sequence: Sequence) -> None:
        """A block for the next position; the youngest goes back to the queue if none is free."""
        while len(sequence.blocks) < blocks_for(len(sequence.ids)):
            while not self.blocks.free:
                assert len(self._running) > 1, "a sequence alone is bounded by the context"
                youngest = self._running.pop()
                self._release(youngest)
                self._waiting.appendleft(youngest)
                self.totals.preemptions += 1
                if youngest is sequence:
                    return
            sequence.blocks.append(self.blocks.take())

    def _grow_early(self, sequences: list[Sequence]) -> None:
        """A block for the position after the next, so that the runner may look ahead, as long as
        there are more than anybody else wants in this step.
        """
        for sequence in sequences:
            length = min(len(sequence.ids) + 1, self.context)
            plenty = self.blocks.free > len(self._running)
            if plenty and len(sequence.blocks) < blocks_for(length):
                sequence.blocks.append(self.blocks.take())

    def _append(self, sampled: Sampled) -> SequenceTokens:
        sequence = sampled.sequence
        if not sequence.generated:
            self.totals.prompt += sequence.prompt_length
        sequence.ids.append(sampled.id)
        sequence.reported += 1
        self.totals.reported += 1
        finish = self._finish(sequence, sampled.id)
        if finish is not None:
            self._end(sequence)
        logprobs = () if sampled.logprobs is None else (sampled.logprobs,)
        return SequenceTokens(sequence.number, (sampled.id,), logprobs, finish)

    def _finish(self, sequence: Sequence, token: int) -> FinishReason | None:
        if token in sequence.sampling.stop_ids:
            return "stop"
        if sequence.generated >= sequence.max_tokens or len(sequence.ids) >= self.context:
            return "length"
        return None

    def _end(self, sequence: Sequence) -> None:
        del self._sequences[sequence.number]
        if sequence.slot:
            self._running.remove(sequence)
            self._release(sequence)
        else:
            self._waiting.remove(sequence)

    def _release(self, sequence: Sequence) -> None:
        """Give back what a sequence holds; the first block is given again first."""
        for block in reversed(sequence.blocks):
            self.blocks.release(block)
        self.slots.release(sequence.slot)
        sequence.blocks, sequence.slot, sequence.computed = [], 0, 0


def _cut(sequence: Sequence, budget: int, chunks: list[Chunk]) -> int:
    """Append the next chunk of a prompt, and return its length; 0 if too little budget is left."""
    start = sequence.computed
    remaining = sequence.prompt_length - start
    count = remaining if remaining <= budget else budget - budget % CHUNK_TOKENS
    if count:
        last = count == remaining and sequence.generated == 0
        chunks.append(Chunk(sequence, start, count, last))
    return count
