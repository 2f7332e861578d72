"""Decode steps on the device, the rows that they leave, and whether the next may join them unread.

Sampling moves a decode row on by itself, so a step needs nothing of the host as long as the same
rows go on. Then the next step is launched before the ids of this one are read: the device never
waits for the host. A row of it whose sequence has ended meanwhile is discarded. See
docs/architecture.md.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Sequence as Items
from dataclasses import dataclass

from flatwake_kernels.backend import Event
from flatwake_kernels.ops import BLOCK_TOKENS

from flatwake_service.engine.arrays import Downloaded, Span
from flatwake_service.engine.batch import DecodeEntry
from flatwake_service.engine.sequence import Sequence


@dataclass(frozen=True)
class DeviceRow:
    """What a decode row holds on the device once its step has sampled."""

    sequence: Sequence
    start: int
    slot: int
    blocks: list[int]
    id: int


@dataclass(frozen=True)
class Launched:
    """A decode step on the device: its rows in order, and where its results will be."""

    entries: tuple[DecodeEntry, ...]
    found: Downloaded
    event: Event
    began: float

    def serves(self, entries: Items[DecodeEntry]) -> bool:
        """Whether these are rows of the step; some of its own may have ended since.

        All or none are: who joins comes by a chunk, and no step is launched ahead beside one.
        """
        rows = {(entry.sequence.number, entry.start) for entry in self.entries}
        found = [(e.sequence.number, e.start) in rows and e.count == 1 for e in entries]
        assert all(found) or not any(found), "a step was launched ahead of other rows"
        return all(found)


def rows_after(step: Launched, table: Callable[[int], list[int]]) -> list[DeviceRow]:
    """The rows that a step leaves; none where a sequence had several, or one didn't sample.

    `table` are the blocks that the device has for an entry.
    """
    if any(entry.count != 1 or not entry.samples for entry in step.entries):
        return []
    ids = step.found.next_ids(len(step.entries))
    return [
        DeviceRow(e.sequence, e.start + 1, e.sequence.slot, table(index), number)
        for index, (e, number) in enumerate(zip(step.entries, ids, strict=True))
    ]


def continues(rows: Items[DeviceRow], spans: Items[Span]) -> bool:
    """Whether the device's rows are these already: sampling has moved each one on by itself."""
    return len(spans) == len(rows) and all(
        span.count == 1
        and span.samples
        and span.sequence is row.sequence
        and span.start == row.start
        and span.sequence.slot == row.slot
        and span.sequence.blocks == row.blocks
        and span.sequence.ids[span.start] == row.id
        for span, row in zip(spans, rows, strict=True)
    )


def may_go_on(entries: Items[DecodeEntry], context: int) -> bool:
    """Whether the rows after these are known: each sequence gets one, unless it ends by a token
    that nobody knows yet.
    """
    return all(
        entry.count == 1
        and entry.samples
        and entry.start + 2 < context
        and entry.start + 1 < len(entry.sequence.blocks) * BLOCK_TOKENS
        and entry.sequence.generated + 1 < entry.sequence.max_tokens
        for entry in entries
    )


def after(entries: Items[DecodeEntry]) -> tuple[DecodeEntry, ...]:
    """The rows of the step after one."""
    # By way of a list: CPython keeps thousands of the tuples that it shortens for a generator.
    rows = [DecodeEntry(e.sequence, e.start + 1, 1, samples=True) for e in entries]
    return tuple(rows)
