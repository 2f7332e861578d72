"""Choices of one prompt hold the same blocks of it: what one has prefilled, another needn't.

Only whole chunks are shared, and never all of a prompt: its last position chooses the first token,
so each choice computes it anew. Only blocks that prefill wrote are ever shared, and their bits
don't depend on how the prompt was cut.
"""

from __future__ import annotations

from collections.abc import Iterable

from flatwake_kernels.ops import BLOCK_TOKENS

from flatwake_service.engine.batch import Chunk
from flatwake_service.engine.sequence import CHUNK_TOKENS, Sequence


def shared_blocks(sequence: Sequence, running: Iterable[Sequence]) -> list[int]:
    """Blocks of the same prompt that another choice of the group has prefilled."""
    most, holder = 0, sequence
    for other in running:
        known = min(other.computed, _sharable(sequence))
        if other.group == sequence.group and known > most:
            most, holder = known, other
    assert holder.ids[:most] == sequence.ids[:most], "one group, two prompts"
    return holder.blocks[: most // CHUNK_TOKENS * CHUNK_TOKENS // BLOCK_TOKENS]


def shares_more_soon(sequence: Sequence, chunks: Iterable[Chunk]) -> bool:
    """Whether another choice prefills in this step what this one would prefill again."""
    return any(
        chunk.sequence.group == sequence.group and chunk.start < _sharable(sequence)
        for chunk in chunks
    )


def _sharable(sequence: Sequence) -> int:
    """Positions that may come from another choice."""
    return (sequence.prompt_length - 1) // CHUNK_TOKENS * CHUNK_TOKENS
