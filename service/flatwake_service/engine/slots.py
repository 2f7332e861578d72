"""Slots: where a sequence's recurrent state, penalties and biases live on the device."""

from __future__ import annotations

from collections.abc import Iterable


class SlotPool:
    """Slots 1 to `total`, the one freed last given first; slot 0 is padding's and never given."""

    def __init__(self, total: int) -> None:
        assert total > 0, "a pool without slots"
        self.total = total
        self._free = list(range(total, 0, -1))

    @property
    def free(self) -> int:
        return len(self._free)

    @property
    def used(self) -> int:
        return self.total - len(self._free)

    def take(self) -> int:
        assert self._free, "no slot is free"
        return self._free.pop()

    def release(self, slot: int) -> None:
        assert 0 < slot <= self.total, f"slot {slot} is not one of 1 to {self.total}"
        assert slot not in self._free, f"slot {slot} is free already"
        self._free.append(slot)

    def check(self, held: Iterable[int]) -> None:
        """Each slot is either free or `held`, exactly once."""
        every = sorted([*self._free, *held])
        assert every == list(range(1, self.total + 1)), f"slots are lost or held twice: {every}"
