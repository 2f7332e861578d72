"""Which processors a benchmark's parts run on: what measures must not be what is measured."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Cores:
    """Processors of the engine alone, and of everything else; empty: wherever there is room."""

    engine: frozenset[int] = field(default_factory=frozenset)
    others: frozenset[int] = field(default_factory=frozenset)

    @classmethod
    def apart(cls) -> Cores:
        """One for the engine, the rest for the others. Raises ValueError when there is only one."""
        mine = sorted(os.sched_getaffinity(0))
        if len(mine) < 2:
            raise ValueError(
                "the engine can have no core of its own: this process may use only one"
            )
        return cls(frozenset(mine[:1]), frozenset(mine[1:]))

    @contextlib.contextmanager
    def as_engine(self) -> Iterator[None]:
        """What this thread runs and starts meanwhile has the engine's cores."""
        if not self.engine:
            yield
            return
        os.sched_setaffinity(0, self.engine)
        try:
            yield
        finally:
            os.sched_setaffinity(0, self.others)

    def release(self) -> None:
        """This thread may run anywhere again."""
        if self.engine:
            os.sched_setaffinity(0, self.engine | self.others)

    def as_other(self, pid: int) -> None:
        """Moves a process, every thread of it, to the others' cores."""
        if self.others:
            for thread in os.listdir(f"/proc/{pid}/task"):
                os.sched_setaffinity(int(thread), self.others)


ANYWHERE = Cores()
