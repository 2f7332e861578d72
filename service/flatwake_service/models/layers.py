"""Layers that every decoder has: norms, feed-forward, attention over paged KV, the output head."""

from __future__ import annotations

from dataclasses import dataclass

from flatwake_kernels import ops
from flatwake_kernels.buffer import Buffer
from flatwake_kernels.declaration import LinearHandle
from flatwake_kernels.dtype import Dtype
from flatwake_kernels.plan import Plan

from flatwake_service.models.rows import Rows
from flatwake_service.models.workspace import Workspace


@dataclass(frozen=True)
class Norm:
    """RMSNorm by `weight + offset`."""

    weight: Buffer
    eps: float
    offset: float = 0.0

    def apply(self, plan: Plan, x: Buffer, y: Buffer, rows: Rows) -> None:
        plan.add(
            ops.RmsNorm(
                x=x, y=y, weight=self.weight, live=rows.live, eps=self.eps,
                weight_offset=self.offset,
            )
        )  # fmt: skip


@dataclass(frozen=True)
class FeedForward:
    """hidden += down(silu(gate) · up) of the normed hidden."""

    norm: Norm
    gate_up: LinearHandle
    down: LinearHandle

    def apply(self, plan: Plan, hidden: Buffer, rows: Rows, space: Workspace) -> None:
        count, width = hidden.shape
        normed = space.get("normed", count, width, dtype=hidden.dtype)
        inner = space.get("ffn", count, self.down.columns, dtype=hidden.dtype)
        self.norm.apply(plan, hidden, normed, rows)
        plan.add(ops.GateUpSilu(x=normed, y=inner, weight=self.gate_up, live=rows.live))
        plan.add(ops.Linear(x=inner, y=hidden, weight=self.down, residual=hidden, live=rows.live))


@dataclass(frozen=True)
class Head:
    """Logits of each sequence's sample row."""

    norm: Norm
    weight: LinearHandle

    def apply(self, plan: Plan, hidden: Buffer, rows: Rows, space: Workspace) -> Buffer:
        """float32 [sequences, vocabulary]."""
        count, width = rows.sequences, hidden.shape[1]
        last = space.get("last", count, width, dtype=hidden.dtype)
        normed = space.get("last_normed", count, width, dtype=hidden.dtype)
        logits = space.get("logits", count, self.weight.rows, dtype=Dtype.F32)
        plan.add(ops.GatherRows(x=hidden, y=last, index=rows.sample_row))
        # There are never more sequences than live rows.
        self.norm.apply(plan, last, normed, rows)
        plan.add(ops.Linear(x=normed, y=logits, weight=self.weight, live=rows.live))
        return logits


def attend(
    plan: Plan, rows: Rows, space: Workspace, q: Buffer, kv: Buffer, y: Buffer, *, prefill: bool
) -> None:
    """y = attention of q over the paged KV, all [rows, heads, head_dim]; scaled by 1/√head_dim."""
    count, heads, head_dim = q.shape
    where = {
        "row_length": rows.row_length,
        "first_row": rows.first_row,
        "row_count": rows.row_count,
        "block_table": rows.block_table,
    }
    scale = head_dim**-0.5
    if prefill:
        plan.add(ops.AttentionPrefill(q=q, kv=kv, y=y, scale=scale, **where))
        return
    splits = ops.MAX_SPLITS
    # A GPU has blocks for many parts, each a chain of waits; a core takes a part at a time.
    part = {"split_positions": ops.BLOCK_TOKENS} if space.device.wave > 1 else {}
    parts = {
        "partial": space.get("partial", count, heads, splits, head_dim, dtype=Dtype.F32),
        "partial_ml": space.get("partial_ml", count, heads, splits, 2, dtype=Dtype.F32),
    }
    plan.add(ops.AttentionDecode(q=q, kv=kv, scale=scale, **parts, **part, **where))
    plan.add(ops.AttentionCombine(y=y, row_length=rows.row_length, **parts, **part))
