"""A sampled quantity over a run: when, after how many requests, how much."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Series:
    """Samples of one quantity of one process, in the order in which they were taken.

    `seconds` is time since the run began, `requests` how many requests had ended by then (both
    [n], never falling), `values` the samples in `unit` ("bytes" or "count"). `grain` is the
    smallest step in which the quantity can move: memory comes in pages, so a sample can hide up
    to one page of growth.
    """

    process: str
    kind: str
    unit: str
    seconds: Floats
    requests: Floats
    values: Floats
    grain: float = 0.0

    def __post_init__(self) -> None:
        assert self.seconds.shape == self.requests.shape == self.values.shape
        assert self.seconds.ndim == 1
        assert np.all(np.diff(self.seconds) >= 0), "samples out of order"
        assert np.all(np.diff(self.requests) >= 0), "requests ran backwards"

    def __len__(self) -> int:
        return len(self.values)

    @property
    def name(self) -> str:
        return f"{self.process} {self.kind}"

    @property
    def span_requests(self) -> float:
        return float(self.requests[-1] - self.requests[0]) if len(self) else 0.0

    @property
    def span_seconds(self) -> float:
        return float(self.seconds[-1] - self.seconds[0]) if len(self) else 0.0

    def select(self, keep: NDArray[np.bool_]) -> Series:
        return replace(
            self,
            seconds=self.seconds[keep],
            requests=self.requests[keep],
            values=self.values[keep],
        )

    def between(self, begin: float, end: float = float("inf")) -> Series:
        """The samples of the seconds from `begin` to `end`."""
        return self.select((self.seconds >= begin) & (self.seconds <= end))

    def part(self, begin: float, end: float = 1.0) -> Series:
        """The samples between two fractions of the time that the series spans."""
        if not len(self):
            return self
        start = float(self.seconds[0])
        return self.between(start + begin * self.span_seconds, start + end * self.span_seconds)


def block_medians(x: Floats, y: Floats, most: int = 40, least: int = 12) -> tuple[Floats, Floats]:
    """x and y in equal blocks, `most` at the most: means of x, medians of y.

    A median forgets a spike that is shorter than half a block, and neighbouring blocks are less
    alike than neighbouring samples, so that what correlation is left can be estimated. What is
    left over of a block, the first samples, isn't used.
    """
    size = max(1, min(3, len(x) // least), -(-len(x) // most))
    left_over = len(x) % size
    blocks_x = x[left_over:].reshape(-1, size)
    blocks_y = y[left_over:].reshape(-1, size)
    return blocks_x.mean(axis=1), np.median(blocks_y, axis=1)
