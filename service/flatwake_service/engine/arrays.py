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

    The host's side is written by `fill`, then `upload` copies what a bucket uses.
    """

    def __init__(self, backend: Backend, rows: int, sequences: int, table_blocks: int) -> None:
        self._backend = backend
        words = 1 + len(_BY_ROW) * rows + (len(_BY_SEQUENCE) + table_blocks) * sequences
        self._host = backend.allocate(words, dtype=Dtype.I32, kind="pinned")
        self._device = backend.allocate(words, dtype=Dtype.I32)
        self._values: dict[str, NDArray[np.int32]] = {}
        self._buffers: dict[str, Buffer] = {}
        host, offset = host_view(self._host.ptr, (words,), Dtype.I32), 0
        shapes: dict[str, tuple[int, ...]] = {"live": (1,)}
        shapes |= dict.fromkeys(_BY_ROW, (rows,))
        shapes |= dict.fromkeys(_BY_SEQUENCE, (sequences,))
        shapes["block_table"] = (sequences, table_blocks)
        for name, shape in shapes.items():
            size = int(np.prod(shape))
            self._values[name] = host[offset : offset + size].reshape(shape)
            self._buffers[name] = self._device.part(offset, size).view(*shape)
            offset += size

    def rows(self, rows: int, sequences: int) -> Rows:
        """The device arrays of a bucket, at the same addresses for every bucket."""
        arrays = {name: self._buffers[name].head(rows) for name in _BY_ROW}
        arrays |= {name: self._buffers[name].head(sequences) for name in _BY_SEQUENCE}
        table = self._buffers["block_table"].head(sequences)
        return Rows(**arrays, block_table=table, live=self._buffers["live"])

    def fill(self, spans: Items[Span]) -> None:
        """Describe `spans` in order; whatever is left over is padding."""
        values = self._values
        for name in ("row_length", "row_position", "row_sequence", "row_id", "slot_out"):
            values[name].fill(0)
        values["row_count"].fill(0)
        values["sample_row"].fill(-1)
        row = 0
        for index, span in enumerate(spans):
            sequence, end = span.sequence, row + span.count
            positions = np.arange(span.start, span.start + span.count)
            values["row_id"][row:end] = sequence.ids[span.start : span.start + span.count]
            values["row_position"][row:end] = positions
            values["row_length"][row:end] = positions + 1
            values["row_sequence"][row:end] = index
            values["slot_out"][row:end] = sequence.slot
            values["first_row"][index] = row
            values["row_count"][index] = span.count
            values["slot_in"][index] = sequence.slot
            values["sampling_slot"][index] = sequence.slot
            values["block_table"][index, : len(sequence.blocks)] = sequence.blocks
            if span.samples:
                values["sample_row"][index] = end - 1
            row = end
        values["live"][0] = row

    def upload(self) -> None:
        self._backend.copy(self._device, self._host)


class Outputs:
    """What sampling leaves for each of `sequences` entries, read back in one copy."""

    def __init__(self, backend: Backend, sequences: int) -> None:
        self._backend = backend
        self._sequences = sequences
        words = sequences * (2 + 2 * TOP_LOGPROBS)
        self._host = backend.allocate(words, dtype=Dtype.I32, kind="pinned")
        self._device = backend.allocate(words, dtype=Dtype.I32)
        self._view = host_view(self._host.ptr, (words,), Dtype.I32)
        self._layout = {"next_id": 1, "chosen": 1, "top_id": TOP_LOGPROBS, "top": TOP_LOGPROBS}

    def buffer(self, name: str, sequences: int) -> Buffer:
        """The device side of next_id, chosen (F32), top_id, top (F32), for a bucket."""
        offset, width = self._place(name)
        part = self._device.part(offset, sequences * width)
        dtype = Dtype.F32 if name in ("chosen", "top") else Dtype.I32
        shape = (sequences,) if width == 1 else (sequences, width)
        return Buffer(part.ptr, shape, dtype, part.memory, part)

    def download(self) -> None:
        self._backend.copy(self._host, self._device)

    def value(self, name: str, index: int) -> NDArray[np.generic]:
        """One entry's words, on the host, after the download's event."""
        offset, width = self._place(name)
        words = self._view[offset + index * width : offset + (index + 1) * width]
        return words.view(np.float32) if name in ("chosen", "top") else words

    def _place(self, name: str) -> tuple[int, int]:
        offset = 0
        for other, width in self._layout.items():
            if other == name:
                return offset * self._sequences, width
            offset += width
        raise KeyError(name)
