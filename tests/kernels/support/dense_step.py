"""The decode step of a tiny dense model, as a plan of ops: every op that such a model runs."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass

import numpy as np
from flatwake_kernels import ops
from flatwake_kernels.backend import Backend
from flatwake_kernels.buffer import Buffer
from flatwake_kernels.declaration import Op
from flatwake_kernels.dtype import Dtype
from flatwake_kernels.plan import Plan
from op_bench import Bench, sequence_rows

LAYERS, HIDDEN, HEADS, KV_HEADS, HEAD_DIM, FFN, VOCABULARY = 2, 64, 4, 2, 16, 96, 160
CONTEXT, SPLITS, BLOCKS = 128, 4, 40
STARTS = (1, 17, 60)
"""Positions that each sequence sees in the first step, its own included."""
TEMPERATURES = (0.0, 0.8, 0.0)


@dataclass
class DenseStep:
    bench: Bench
    plan: Plan
    next_id: Buffer
    logits: Buffer
    chosen: Buffer


class _Builder:
    """Collects the calls; `dtype` is of activations and KV."""

    def __init__(self, backend: Backend, seed: int, dtype: Dtype, rows: int) -> None:
        self.b = Bench(backend, seed)
        self.dtype, self.rows = dtype, rows
        self.calls: list[Op] = []
        arrays = sequence_rows([[s] for s in STARTS], rows)
        self.row = {name: self.b.ints(values) for name, values in arrays.items()}
        self.live = self.b.ints([len(STARTS)])
        table = np.zeros((rows, CONTEXT // ops.BLOCK_TOKENS), np.int32)
        blocks = self.b.random.permutation(np.arange(1, BLOCKS))
        for sequence in range(len(STARTS)):
            width = table.shape[1]
            table[sequence] = blocks[sequence * width : (sequence + 1) * width]
        self.table = self.b.ints(table)
        angles = np.arange(CONTEXT)[:, None] * 100.0 ** (-np.arange(8) / 8)
        self.rope = self.b.given(np.stack([np.cos(angles), np.sin(angles)], axis=1))
        self.hidden = self.empty(HIDDEN)

    def empty(self, *shape: int, dtype: Dtype | None = None) -> Buffer:
        return self.b.given(np.zeros((self.rows, *shape)), self.dtype if dtype is None else dtype)

    def linear(self, x: Buffer, outputs: int, **more: Buffer) -> Buffer:
        inputs = x.shape[1]
        y = more.get("residual") or self.empty(outputs)
        layer = self.b.layer(outputs, inputs, Dtype.BF16)
        self.calls.append(ops.Linear(x=x, y=y, weight=layer, live=self.live, **more))
        return y

    def norm(self, x: Buffer) -> Buffer:
        y, weight = self.empty(HIDDEN), self.b.normal(HIDDEN)
        self.calls.append(ops.RmsNorm(x=x, y=y, weight=weight, live=self.live, eps=1e-5))
        return y

    def attention(self, projection: Buffer) -> Buffer:
        kv = self.b.normal(
            2, BLOCKS, KV_HEADS, ops.BLOCK_TOKENS, HEAD_DIM, dtype=self.dtype, scale=0.5
        )
        q = self.empty(HEADS, HEAD_DIM)
        where = {"row_length": self.row["row_length"], "block_table": self.table}
        rows = {"first_row": self.row["first_row"], "row_count": self.row["row_count"]}
        partial = self.empty(HEADS, SPLITS, HEAD_DIM, dtype=Dtype.F32)
        partial_ml = self.empty(HEADS, SPLITS, 2, dtype=Dtype.F32)
        y = self.empty(HEADS, HEAD_DIM)
        self.calls += [
            ops.QkNormRopeWrite(
                projection=projection,
                q=q,
                kv=kv,
                rope=self.rope,
                row_position=self.row["row_position"],
                row_sequence=self.row["row_sequence"],
                live=self.live,
                k_offset=HEADS * HEAD_DIM,
                v_offset=(HEADS + KV_HEADS) * HEAD_DIM,
                **where,
            ),
            ops.AttentionDecode(
                q=q,
                kv=kv,
                partial=partial,
                partial_ml=partial_ml,
                split_positions=16,
                scale=HEAD_DIM**-0.5,
                **where,
                **rows,
            ),
            ops.AttentionCombine(
                partial=partial,
                partial_ml=partial_ml,
                y=y,
                row_length=self.row["row_length"],
                split_positions=16,
            ),
        ]
        return y.view(self.rows, HEADS * HEAD_DIM)

    def layer(self) -> None:
        projection = self.linear(self.norm(self.hidden), (HEADS + 2 * KV_HEADS) * HEAD_DIM)
        mixed = self.linear(self.attention(projection), HIDDEN)
        y, weight = self.empty(HIDDEN), self.b.normal(HIDDEN)
        self.calls.append(
            ops.AddRmsNorm(
                x=mixed, residual=self.hidden, y=y, weight=weight, live=self.live, eps=1e-5
            )
        )
        gated = self.empty(FFN)
        up = self.b.layer(FFN, HIDDEN, Dtype.BF16, Dtype.BF16)
        self.calls.append(ops.GateUpSilu(x=y, y=gated, weight=up, live=self.live))
        self.linear(gated, HIDDEN, residual=self.hidden)


def dense_step(backend: Backend, seed: int, dtype: Dtype, rows: int = 4) -> DenseStep:
    """A step of three sequences in a bucket of `rows`; each run moves them on by a token."""
    build = _Builder(backend, seed, dtype, rows)
    b = build.b
    row_id = b.ints(np.arange(rows) * 11 % VOCABULARY)
    vocabulary = b.layer(VOCABULARY, HIDDEN, Dtype.BF16)
    build.calls.append(
        ops.Embedding(y=build.hidden, row_id=row_id, live=build.live, table=vocabulary)
    )
    for _ in range(LAYERS):
        build.layer()
    index = b.ints([*range(len(STARTS)), *[-1] * (rows - len(STARTS))])
    last, logits = build.empty(HIDDEN), build.empty(VOCABULARY, dtype=Dtype.F32)
    build.calls += [
        ops.GatherRows(x=build.norm(build.hidden), y=last, index=index),
        ops.Linear(x=last, y=logits, weight=vocabulary, live=build.live),
    ]
    next_id, chosen = b.ints(np.zeros(rows)), b.given(np.zeros(rows))
    records = (ops.Sampling * rows)()
    for slot, temperature in enumerate(TEMPERATURES):
        records[slot].seed, records[slot].temperature = 1000 + slot, temperature
        records[slot].top_p, records[slot].repetition_penalty = 0.9, 1.1
        records[slot].flags = ops.SAMPLE_PENALTIES
    shared = {
        "logits": logits,
        "slots": b.given(np.frombuffer(bytes(records), np.int8), Dtype.I8),
        "sampling_slot": b.ints(np.arange(rows)),
        "next_id": next_id,
    }
    assert len(bytes(records)) == rows * ctypes.sizeof(ops.Sampling)
    build.calls += [
        ops.Sample(
            counts=b.ints(np.zeros((rows, VOCABULARY))),
            bias_id=b.ints(np.zeros((rows, 1))),
            bias=b.given(np.zeros((rows, 1))),
            ban_id=b.ints(np.zeros((rows, 1))),
            sample_row=index,
            row_id=row_id,
            row_position=build.row["row_position"],
            row_length=build.row["row_length"],
            vocabulary_live=VOCABULARY - 3,
            **shared,
        ),
        ops.Logprobs(
            chosen=chosen,
            top_id=b.ints(np.zeros((rows, 2))),
            top_logprob=b.given(np.zeros((rows, 2))),
            vocabulary_live=VOCABULARY - 3,
            **shared,
        ),
    ]
    with backend.record() as plan:
        for call in build.calls:
            plan.add(call)
    return DenseStep(b, plan, next_id, logits, chosen)
