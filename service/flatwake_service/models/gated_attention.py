"""Full attention with normed heads, partial rotary embedding and a gate on its output."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from flatwake_kernels import ops
from flatwake_kernels.buffer import Buffer
from flatwake_kernels.declaration import LinearHandle
from flatwake_kernels.plan import Plan
from numpy.typing import NDArray

from flatwake_service.models.cache import Cache
from flatwake_service.models.layers import attend
from flatwake_service.models.rows import Rows
from flatwake_service.models.workspace import Workspace


@dataclass(frozen=True)
class GatedAttention:
    """Rows of `qgkv` are queries, gates, keys, values; `layer` counts the cache's KV layers."""

    qgkv: LinearHandle
    q_norm: Buffer
    k_norm: Buffer
    output: LinearHandle
    heads: int
    kv_heads: int
    head_dim: int
    eps: float
    norm_offset: float
    layer: int

    def apply(
        self,
        plan: Plan,
        x: Buffer,
        rows: Rows,
        space: Workspace,
        cache: Cache,
        rope: Buffer,
        *,
        prefill: bool,
    ) -> Buffer:
        """The gated attention of x, before the output projection: [rows, heads · head_dim]."""
        count, dtype = rows.rows, x.dtype
        q_size, kv_size = self.heads * self.head_dim, self.kv_heads * self.head_dim
        packed = space.get("qgkv", count, 2 * (q_size + kv_size), dtype=dtype)
        q = space.get("q", count, self.heads, self.head_dim, dtype=dtype)
        y = space.get("mixed", count, self.heads, self.head_dim, dtype=dtype)
        plan.add(ops.Linear(x=x, y=packed, weight=self.qgkv, live=rows.live))
        plan.add(
            ops.QkNormRopeWrite(
                projection=packed,
                q=q,
                kv=cache.kv[self.layer],
                q_norm=self.q_norm,
                k_norm=self.k_norm,
                rope=rope,
                row_position=rows.row_position,
                row_length=rows.row_length,
                row_sequence=rows.row_sequence,
                block_table=rows.block_table,
                live=rows.live,
                k_offset=2 * q_size,
                v_offset=2 * q_size + kv_size,
                eps=self.eps,
                weight_offset=self.norm_offset,
            )
        )
        attend(plan, rows, space, q, cache.kv[self.layer], y, prefill=prefill)
        flat = y.view(count, q_size)
        plan.add(ops.OutputGate(x=flat, gate=packed, y=flat, live=rows.live, gate_offset=q_size))
        return flat


def queries_then_gates(heads: int, head_dim: int) -> NDArray[np.int32]:
    """Rows of q_proj, which deals out a head's queries and gates in turn: all queries first."""
    rows = np.arange(heads * 2 * head_dim, dtype=np.int32).reshape(heads, 2, head_dim)
    return np.ascontiguousarray(rows.swapaxes(0, 1).reshape(-1))
