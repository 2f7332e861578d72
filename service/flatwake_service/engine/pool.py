"""How much KV fits: the pool's size from the memory that all else leaves free."""

from __future__ import annotations

from dataclasses import dataclass

from flatwake_kernels.backend import Backend
from flatwake_kernels.dtype import Dtype
from flatwake_kernels.ops import BLOCK_TOKENS

from flatwake_service.engine.config import HOST_BACKENDS, EngineConfig
from flatwake_service.engine.host import host_free
from flatwake_service.errors import FlatwakeError
from flatwake_service.models.cache import CacheShape

HOST_RESERVE = 512 << 20
"""Left to everything else on a machine whose memory the pool shares."""
CPU_FRACTION, DEVICE_FRACTION = 0.5, 0.9


class PoolTooSmall(FlatwakeError):
    """Not even one block of KV fits."""

    reason = "OutOfMemory"


@dataclass(frozen=True)
class PoolSize:
    """`blocks` beside block 0; `context` is the effective one, in tokens."""

    blocks: int
    context: int

    @property
    def tokens(self) -> int:
        return self.blocks * BLOCK_TOKENS


def size_pool(
    shape: CacheShape, dtype: Dtype, *, context: int, sequences: int, available: int
) -> PoolSize:
    """The smaller of what `sequences` full contexts need and what `available` bytes hold.

    Raises:
        PoolTooSmall: less than one block and the slots fit.
    """
    wanted = sequences * -(-context // BLOCK_TOKENS)
    slots = (sequences + 1) * shape.slot_bytes
    # Block 0 is padding's.
    fit = (available - slots) // shape.block_bytes(dtype) - 1
    blocks = min(wanted, fit)
    if blocks < 1:
        raise PoolTooSmall(
            f"{available / 1e6:.0f} MB are left for KV and state; one block of 16 tokens needs "
            f"{shape.block_bytes(dtype) / 1e6:.1f} MB and {sequences} slots {slots / 1e6:.1f} MB",
            cure="give the server more memory, or lower engine.maxSequences",
        )
    return PoolSize(blocks, min(context, blocks * BLOCK_TOKENS))


def free_bytes(backend: Backend, config: EngineConfig) -> int:
    """Bytes that are free where this backend allocates. What it has allocated and not touched yet
    still counts as free on a host, and no longer on a device: so this is asked before, and what is
    allocated afterwards is taken off.
    """
    if config.backend in HOST_BACKENDS:
        return host_free() - HOST_RESERVE
    return backend.memory().free


def pool_share(left: int, config: EngineConfig) -> int:
    """Bytes that the pool may take of what is left: a margin stays for what nobody counts."""
    usual = CPU_FRACTION if config.backend in HOST_BACKENDS else DEVICE_FRACTION
    fraction = config.kv_memory_fraction
    return int((usual if fraction is None else fraction) * max(0, left))
