"""Attention against plain softmax in float64, by every path that a row may take."""

from __future__ import annotations

import numpy as np
from attention_cases import attention_decode, attention_prefill
from flatwake_kernels import ops
from flatwake_kernels.backend import Backend
from flatwake_kernels.dtype import Dtype
from op_bench import SEED, Bench

LENGTHS = [[1], [33, 34], [300]]


def _plain(op: ops.Op) -> list[np.ndarray]:
    """Softmax attention of each live row, written out in float64."""
    value = {name: buffer.read() for name, buffer in op.values.items() if hasattr(buffer, "read")}
    kv, q = value["kv"].astype(np.float64), value["q"].astype(np.float64)
    group = q.shape[1] // kv.shape[2]
    found, row = [], 0
    for sequence, lengths in enumerate(LENGTHS):
        for length in lengths:
            blocks = value["block_table"][sequence, : -(-length // 16)]
            pages = np.moveaxis(kv[:, blocks], 2, 1).reshape(2, kv.shape[2], -1, kv.shape[-1])
            keys, values = pages[:, :, :length].repeat(group, axis=1)
            scores = np.einsum("hd,hld->hl", q[row], keys) * op.params.scale
            weights = np.exp(scores - scores.max(axis=1, keepdims=True))
            weights /= weights.sum(axis=1, keepdims=True)
            found.append(np.einsum("hl,hld->hd", weights, values))
            row += 1
    return found


def test_decode_and_combine_give_softmax_attention(any_backend: Backend) -> None:
    bench = Bench(any_backend, SEED)
    decode = attention_decode(bench, LENGTHS, 8)
    y = bench.empty(8, 6, 64)
    combine = ops.AttentionCombine(
        partial=decode.values["partial"],
        partial_ml=decode.values["partial_ml"],
        y=y,
        row_length=decode.values["row_length"],
        split_positions=64,
    )
    with any_backend.record() as plan:
        plan.add(decode)
        plan.add(combine)
    plan.run()
    bench.check_guards()
    wanted = np.array(_plain(decode))
    found = y.read()
    assert np.abs(found[: len(wanted)] - wanted).max() < 2e-6
    assert not found[len(wanted) :].any(), "rows of length 0 give 0"


def test_prefill_gives_softmax_attention(any_backend: Backend) -> None:
    bench = Bench(any_backend, SEED)
    op = attention_prefill(bench, LENGTHS, 8, kv_dtype=Dtype.F32)
    with any_backend.record() as plan:
        plan.add(op)
    plan.run()
    y = op.values["y"]
    assert np.abs(y.read()[:4] - np.array(_plain(op))).max() < 2e-6  # type: ignore[union-attr]
