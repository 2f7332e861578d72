"""The device arrays that describe a step's rows and sequences, for one bucket."""

from __future__ import annotations

from dataclasses import dataclass

from flatwake_kernels.buffer import Buffer


@dataclass(frozen=True)
class Rows:
    """Fixed addresses that a plan is recorded over; their contents change by step. All int32.

    By row `[rows]`: `row_id, row_position, row_length, row_sequence, slot_out`. By sequence
    `[sequences]`: `first_row, row_count, slot_in, sample_row, sampling_slot`; `block_table` is
    `[sequences, table_blocks]`. `live` `[1]` counts the real rows.
    """

    row_id: Buffer
    row_position: Buffer
    row_length: Buffer
    row_sequence: Buffer
    slot_out: Buffer
    first_row: Buffer
    row_count: Buffer
    slot_in: Buffer
    sample_row: Buffer
    sampling_slot: Buffer
    block_table: Buffer
    live: Buffer

    @property
    def rows(self) -> int:
        return self.row_id.shape[0]

    @property
    def sequences(self) -> int:
        return self.first_row.shape[0]
