"""A step's small inputs and outputs: one pinned region each way, so that one copy carries all."""

from __future__ import annotations

from collections.abc import Sequence as Items
from dataclasses import dataclass

import numpy as np
from flatwake_kernels.backend import Backend
from flatwake_kernels.buffer import Buffer, host_view
from flatwake_kernels.dtype import Dtype
from numpy.typing import NDArray

from flatwake_service.engine.sequence import Sequence
from flatwake_service.models.rows import Rows

TOP_LOGPROBS = 20
_BY_ROW = ("row_id", "row_position", "row_length", "row_sequence", "slot_out")
_BY_SEQUENCE = ("first_row", "row_count", "slot_in", "sample_row", "sampling_slot")


@dataclass(frozen=True)
class Span:
    """Rows of one sequence: `count` from position `start`; whether the last one samples."""

    sequence: Sequence
    start: int
    count: int
    samples: bool


class Inputs:
    """The arrays of `Rows`, for up to `rows` rows and `sequences` sequences.

    The host's side is written by `fill`, then one `upload` copies everything.
    """

    def __init__(self, backend: Backend, rows: int, sequences: int, table_blocks: int) -> None:
        self._backend = backend
        words = 1 + len(_BY_ROW) * rows + (len(_BY_SEQUENCE) + table_blocks) * sequences
        self._host = backend.allocate(words, dtype=Dtype.I32, kind="pinned")
        self._device = backend.allocate(words, dtype=Dtype.I32)
        self._values: dict[str, NDArray[np.int32]] = {}
        self._tables: list[list[int]] = [[] for _ in range(sequences)]
        self._buffers: dict[str, Buffer] = {}
        host, offset = host_view(self._host.ptr, (words,), Dtype.I32), 0
        shapes: dict[str, tuple[int, ...]] = {"live": (1,)}
        shapes |= dict.fromkeys(_BY_ROW, (rows,))
        shapes |= dict.fromkeys(_BY_SEQUENCE, (sequences,))
        shapes["block_table"] = (sequences, table_blocks)  # the last one: see _table_parts
        for name, shape in shapes.items():
            size = int(np.prod(shape))
            self._values[name] = host[offset : offset + size].reshape(shape)
            self._buffers[name] = self._device.part(offset, size).view(*shape)
            self._table_parts = self._device.part(offset, size), self._host.part(offset, size)
            offset += size

    def rows(self, rows: int, sequences: int) -> Rows:
        """The device arrays of a bucket, at the same addresses for every bucket."""
        arrays = {name: self._buffers[name].head(rows) for name in _BY_ROW}
        arrays |= {name: self._buffers[name].head(sequences) for name in _BY_SEQUENCE}
        table = self._buffers["block_table"].head(sequences)
        return Rows(**arrays, block_table=table, live=self._buffers["live"])

    def fill(self, spans: Items[Span]) -> None:
        """Describe `spans` in order; whatever is left over is padding."""
        by_row: dict[str, list[int]] = {name: [] for name in _BY_ROW}
        by_sequence: dict[str, list[int]] = {name: [] for name in _BY_SEQUENCE}
        row = 0
        for index, span in enumerate(spans):
            sequence, start, end = span.sequence, span.start, span.start + span.count
            by_row["row_id"] += sequence.ids[start:end]
            by_row["row_position"] += range(start, end)
            by_row["row_length"] += range(start + 1, end + 1)
            by_row["row_sequence"] += [index] * span.count
            by_row["slot_out"] += [sequence.slot] * span.count
            by_sequence["first_row"].append(row)
            by_sequence["row_count"].append(span.count)
            by_sequence["slot_in"].append(sequence.slot)
            by_sequence["sampling_slot"].append(sequence.slot)
            row += span.count
            by_sequence["sample_row"].append(row - 1 if span.samples else -1)
            self._write_table(index, sequence.blocks)
        for name, found in (by_row | by_sequence).items():
            values = self._values[name]
            values[: len(found)] = found
            values[len(found) :] = -1 if name == "sample_row" else 0
        self._values["live"][0] = row

    def _write_table(self, index: int, blocks: list[int]) -> None:
        """Most steps leave most tables as they were. Behind its end a table holds padding's block:
        what a kernel might write there by mistake belongs to nobody.
        """
        before = self._tables[index]
        if before != blocks:
            table = self._values["block_table"][index]
            table[: len(blocks)] = blocks
            table[len(blocks) : len(before)] = 0
            self._tables[index] = list(blocks)

    def upload(self) -> None:
        self._backend.copy(self._device, self._host)

    def table(self, index: int) -> list[int]:
        """The blocks that an entry's table holds on the device, once its upload has been made."""
        return self._tables[index]

    def upload_tables(self, sequences: Items[Sequence]) -> None:
        """Bring the tables of the entries up to date, and nothing else."""
        for index, sequence in enumerate(sequences):
            self._write_table(index, sequence.blocks)
        self._backend.copy(*self._table_parts)


@dataclass(frozen=True)
class Downloaded:
    """What a step left, on the host: valid after its event, until the download after the next."""

    side: int
    _words: NDArray[np.int32]
    _places: dict[str, tuple[int, int]]

    def next_ids(self, sequences: int) -> list[int]:
        """The entries' next ids."""
        ids: list[int] = self._words[:sequences].tolist()
        return ids

    def value(self, name: str, index: int) -> NDArray[np.generic]:
        """One entry's words."""
        offset, width = self._places[name]
        words = self._words[offset + index * width : offset + (index + 1) * width]
        return words.view(np.float32) if name in ("chosen", "top") else words


class Outputs:
    """What sampling leaves for each of `sequences` entries, read back in one copy.

    The host's side is twofold: a step's results stay while the next step's arrive.
    """

    def __init__(self, backend: Backend, sequences: int) -> None:
        self._backend = backend
        self._places: dict[str, tuple[int, int]] = {}
        widths = {"next_id": 1, "chosen": 1, "top_id": TOP_LOGPROBS, "top": TOP_LOGPROBS}
        words = 0
        for name, width in widths.items():
            self._places[name] = words, width
            words += sequences * width
        self._device = backend.allocate(words, dtype=Dtype.I32)
        self._hosts = [backend.allocate(words, dtype=Dtype.I32, kind="pinned") for _ in range(2)]
        self._views = [host_view(host.ptr, (words,), Dtype.I32) for host in self._hosts]
        self._side = 0

    def buffer(self, name: str, sequences: int) -> Buffer:
        """The device side of next_id, chosen (F32), top_id, top (F32), for a bucket."""
        offset, width = self._places[name]
        part = self._device.part(offset, sequences * width)
        dtype = Dtype.F32 if name in ("chosen", "top") else Dtype.I32
        shape = (sequences,) if width == 1 else (sequences, width)
        return Buffer(part.ptr, shape, dtype, part.memory, part)

    def download(self) -> Downloaded:
        self._side = side = 1 - self._side
        self._backend.copy(self._hosts[side], self._device)
        return Downloaded(side, self._views[side], self._places)
