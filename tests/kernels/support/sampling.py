"""A sampling op over given logits, with everything that the slots may hold."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass, field

import numpy as np
from flatwake_kernels import ops
from flatwake_kernels.backend import Backend
from flatwake_kernels.buffer import Buffer
from flatwake_kernels.dtype import Dtype
from op_bench import SEED, Bench

DEFAULTS = {"top_p": 1.0, "repetition_penalty": 1.0, "logprobs": -1}


@dataclass
class Slot:
    """What one sequence asks for; `settings` are fields of ops.Sampling."""

    settings: dict[str, float] = field(default_factory=dict)
    bias: dict[int, float] = field(default_factory=dict)
    banned: tuple[int, ...] = ()
    counts: dict[int, int] = field(default_factory=dict)
    allowed: tuple[int, ...] | None = None


class Sampler:
    """One sequence a slot; sequence i has row i and sampling slot n - 1 - i."""

    def __init__(
        self, backend: Backend, logits: np.ndarray, slots: list[Slot],
        *, positions: list[int] | None = None, live: int | None = None, idle: tuple[int, ...] = (),
    ) -> None:  # fmt: skip
        count, vocabulary = logits.shape
        bench = self.bench = Bench(backend, SEED)
        positions = positions or [5] * count
        order = list(range(count))[::-1]
        placed = [slots[order.index(s)] for s in range(count)]
        most = 8
        words = -(-vocabulary // 32)
        counts = np.zeros((count, vocabulary), np.int32)
        bias_id, bias = np.zeros((count, most), np.int32), np.zeros((count, most), np.float32)
        ban_id = np.zeros((count, most), np.int32)
        mask = np.zeros((count, words * 32), np.uint8)
        records = (ops.Sampling * count)()
        for index, slot in enumerate(placed):
            for name, value in {**DEFAULTS, **slot.settings}.items():
                setattr(records[index], name, value)
            records[index].bias_count = len(slot.bias)
            bias_id[index, : len(slot.bias)] = list(slot.bias)
            bias[index, : len(slot.bias)] = list(slot.bias.values())
            records[index].ban_count = len(slot.banned)
            ban_id[index, : len(slot.banned)] = slot.banned
            if slot.counts:
                records[index].flags |= ops.SAMPLE_PENALTIES
                counts[index, list(slot.counts)] = list(slot.counts.values())
            if slot.allowed is not None:
                records[index].flags |= ops.SAMPLE_MASK
                mask[index, list(slot.allowed)] = 1
        packed = np.packbits(mask, axis=1, bitorder="little").view(np.int32)
        slot_bytes = np.frombuffer(bytes(records), np.int8)
        assert slot_bytes.nbytes == count * ctypes.sizeof(ops.Sampling)
        rows = np.arange(count)
        rows[list(idle)] = -1
        self.counts, self.next_id = bench.given(counts, Dtype.I32), bench.ints(np.full(count, -7))
        self.row_id, self.row_position = bench.ints(np.full(count, -7)), bench.ints(positions)
        self.row_length = bench.ints(np.array(positions) + 1)
        shared: dict[str, Buffer] = {
            "logits": bench.given(logits),
            "slots": bench.given(slot_bytes, Dtype.I8),
            "sampling_slot": bench.ints(order),
            "next_id": self.next_id,
        }
        live = vocabulary if live is None else live
        self.op = ops.Sample(
            counts=self.counts,
            bias_id=bench.ints(bias_id),
            bias=bench.given(bias),
            ban_id=bench.ints(ban_id),
            mask=bench.given(packed, Dtype.I32),
            sample_row=bench.ints(rows),
            row_id=self.row_id,
            row_position=self.row_position,
            row_length=self.row_length,
            vocabulary_live=live,
            **shared,
        )
        self.chosen = bench.empty(count)
        self.top_id = bench.ints(np.full((count, 6), -7))
        self.top_logprob = bench.empty(count, 6)
        self.logprobs = ops.Logprobs(
            chosen=self.chosen, top_id=self.top_id, top_logprob=self.top_logprob,
            vocabulary_live=live, **shared,
        )  # fmt: skip
        with backend.record() as self.plan:
            self.plan.add(self.op)
            self.plan.add(self.logprobs)

    def run(self) -> list[int]:
        """The next id of each sequence."""
        self.plan.run()
        self.bench.check_guards()
        ids: list[int] = self.next_id.read().tolist()
        return ids
