"""KV blocks: which are free, and how many tables hold each of the others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from flatwake_kernels.ops import BLOCK_TOKENS


def blocks_for(tokens: int) -> int:
    """Blocks that hold `tokens` positions."""
    return -(-tokens // BLOCK_TOKENS)


class BlockPool:
    """Reference-counted blocks 1 to `total`; block 0 is padding's and never given.

    The block freed last is given first, and one that was never given only when none was freed, so
    that touched memory is the peak's. Its own memory grows with `touched`, not with `total`.
    """

    def __init__(self, total: int) -> None:
        assert total > 0, "a pool without blocks"
        self.total = total
        self._counts = [0]
        self._freed: list[int] = []

    @property
    def free(self) -> int:
        return self.total - self.used

    @property
    def used(self) -> int:
        return self.touched - len(self._freed)

    @property
    def touched(self) -> int:
        """Blocks that were ever given: the peak of `used`."""
        return len(self._counts) - 1

    def count(self, block: int) -> int:
        """How many hold the block; 0 if it is free."""
        return self._counts[block] if block < len(self._counts) else 0

    def take(self) -> int:
        """A free block, held once."""
        if self._freed:
            block = self._freed.pop()
            self._counts[block] = 1
            return block
        assert self.touched < self.total, "no block is free"
        self._counts.append(1)
        return self.touched

    def share(self, block: int) -> None:
        """Hold a block once more."""
        assert self.count(block) > 0, f"block {block} is free and can't be shared"
        self._counts[block] += 1

    def release(self, block: int) -> None:
        """Let go of a block once; it is free when nobody holds it."""
        assert block > 0, "block 0 is padding's"
        assert self.count(block) > 0, f"block {block} is free already"
        self._counts[block] -= 1
        if self._counts[block] == 0:
            self._freed.append(block)

    def check(self, tables: Iterable[Sequence[int]]) -> None:
        """A block's count is the number of `tables` that hold it; free means that none does."""
        held = Counter(block for table in tables for block in table)
        assert held[0] == 0, "a table holds block 0"
        for block in range(1, self.touched + 1):
            assert self._counts[block] == held.pop(block, 0), f"block {block} is miscounted"
        assert not +held, f"tables hold blocks that were never given: {sorted(+held)}"
        freed = set(self._freed)
        assert len(freed) == len(self._freed), "a block was freed twice"
        assert all(self._counts[block] == 0 for block in freed), "a held block is among the free"
        assert self.used == sum(count > 0 for count in self._counts), "a free block was lost"
        assert self.touched <= self.total, "more blocks were given than there are"
