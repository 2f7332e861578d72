"""A recorded list of op calls that runs as one."""

from __future__ import annotations

from abc import ABC, abstractmethod
from types import TracebackType
from typing import Self

from flatwake_kernels.declaration import Op


class Plan(ABC):
    """`with backend.record() as plan: plan.add(op)…`, then `plan.run()` any number of times.

    A run reads what the recorded addresses hold at that time. Ops run in order. `run` may return
    before the device has finished: copies and events of the same backend are ordered after it.
    """

    def __init__(self) -> None:
        self.ops: list[Op] = []

    def add(self, op: Op) -> None:
        self.ops.append(op)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is None:
            self.finish()

    @abstractmethod
    def finish(self) -> None:
        """Make the recorded calls runnable. Nothing is added afterwards."""

    @abstractmethod
    def capture(self) -> None:
        """Turn the calls into one device graph, where the backend has graphs."""

    @abstractmethod
    def run(self) -> None:
        """Launch all calls."""

    @abstractmethod
    def trace(self) -> list[float]:
        """Run once, call by call, and wait: the seconds of each."""
