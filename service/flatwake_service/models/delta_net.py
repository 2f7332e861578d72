"""Gated DeltaNet: linear attention with a recurrent state in place of KV."""

from __future__ import annotations

from dataclasses import dataclass

from flatwake_kernels import ops
from flatwake_kernels.buffer import Buffer
from flatwake_kernels.declaration import LinearHandle
from flatwake_kernels.plan import Plan

from flatwake_service.models.cache import Cache
from flatwake_service.models.rows import Rows
from flatwake_service.models.workspace import Workspace

L2_EPS = 1e-6
"""Inside the root of the norms of q and k, whatever the model's own eps."""


@dataclass(frozen=True)
class DeltaNet:
    """Rows of `projection` are q, k, v, z, b, a.

    `state` is the place of the conv state among the cache's states; the recurrent one follows.
    `tiled`: V head h uses K head h mod k_heads, else h // (v_heads / k_heads).
    """

    projection: LinearHandle
    conv: Buffer
    negative_a: Buffer
    dt_bias: Buffer
    norm: Buffer
    output: LinearHandle
    k_heads: int
    v_heads: int
    key_dim: int
    value_dim: int
    eps: float
    tiled: bool
    state: int

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
        """The gated output of the recurrence, before the output projection."""
        count, dtype = rows.rows, x.dtype
        channels = 2 * self.k_heads * self.key_dim + self.v_heads * self.value_dim
        z_size = self.v_heads * self.value_dim
        packed = space.get("qkvzba", count, channels + z_size + 2 * self.v_heads, dtype=dtype)
        mixed = space.get("conv", count, channels, dtype=dtype)
        y = space.get("delta", count, self.v_heads, self.value_dim, dtype=dtype)
        gated = space.get("delta_gated", count, self.v_heads, self.value_dim, dtype=dtype)
        slots = {
            "first_row": rows.first_row,
            "row_count": rows.row_count,
            "slot_in": rows.slot_in,
            "slot_out": rows.slot_out,
        }
        conv, recur = (ops.ConvChunk, ops.GdnChunk) if prefill else (ops.ConvStep, ops.GdnStep)
        plan.add(ops.Linear(x=x, y=packed, weight=self.projection, live=rows.live))
        plan.add(conv(x=packed, y=mixed, weight=self.conv, state=cache.states[self.state], **slots))
        plan.add(
            recur(
                qkv=mixed,
                ab=packed,
                negative_a=self.negative_a,
                dt_bias=self.dt_bias,
                state=cache.states[self.state + 1],
                y=y,
                k_heads=self.k_heads,
                a_offset=channels + z_size + self.v_heads,
                b_offset=channels + z_size,
                head_map=int(self.tiled),
                eps=L2_EPS,
                **slots,
            )
        )
        plan.add(
            ops.GatedRmsNorm(
                x=y,
                gate=packed,
                y=gated,
                weight=self.norm,
                live=rows.live,
                gate_offset=channels,
                eps=self.eps,
            )
        )
        return gated.view(count, z_size)
