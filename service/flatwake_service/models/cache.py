"""Paged KV and recurrent state on the device."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from flatwake_kernels import ops
from flatwake_kernels.backend import Backend
from flatwake_kernels.buffer import Buffer
from flatwake_kernels.dtype import Dtype
from flatwake_kernels.ops import BLOCK_TOKENS


@dataclass(frozen=True)
class CacheShape:
    """What a decoder keeps of each position and of each sequence.

    `states` are the shapes of the recurrent layers' float32 arrays of one slot.
    """

    kv_layers: int
    kv_heads: int
    head_dim: int
    states: tuple[tuple[int, ...], ...] = ()

    def block_bytes(self, dtype: Dtype) -> int:
        """Bytes of one block in all layers."""
        return self.kv_layers * dtype.bytes(2 * self.kv_heads * BLOCK_TOKENS * self.head_dim)

    @property
    def slot_bytes(self) -> int:
        """Bytes of one slot in all layers."""
        return sum(Dtype.F32.bytes(prod(shape)) for shape in self.states)


class Cache:
    """KV `[2, blocks, kv_heads, 16, head_dim]` a layer, and state `[slots, …]` a recurrent layer.

    Block 0 and slot 0 are padding's: `blocks` and `slots` count them too.
    """

    def __init__(
        self, backend: Backend, shape: CacheShape, dtype: Dtype, blocks: int, slots: int
    ) -> None:
        self.kv: list[Buffer] = [
            backend.allocate(2, blocks, shape.kv_heads, BLOCK_TOKENS, shape.head_dim, dtype=dtype)
            for _ in range(shape.kv_layers)
        ]
        self.states: list[Buffer] = [
            backend.allocate(slots, *state, dtype=Dtype.F32) for state in shape.states
        ]
        self._zeroed = backend.allocate(1, dtype=Dtype.I32)
        with backend.record() as self._zero:
            for state in self.states:
                self._zero.add(ops.SlotZero(state=_words(state), target=self._zeroed))

    def zero(self, slot: int) -> None:
        """Forget a slot's state in every layer; ordered with the steps."""
        self._zeroed.write([slot])
        self._zero.run()


def _words(state: Buffer) -> Buffer:
    """A state's slots as rows of 32-bit words."""
    flat = state.view(state.shape[0], prod(state.shape[1:]))
    return Buffer(flat.ptr, flat.shape, Dtype.I32, flat.memory, flat)
