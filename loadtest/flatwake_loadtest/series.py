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
    """x and y reduced to at most `most` consecutive blocks: means of x, medians of y.

    A median forgets a spike that is shorter than half a block, and neighbouring blocks are less
    alike than neighbouring samples, so that what correlation is left can be estimated.
    """
    count = int(np.clip(len(x) // 3, least, most))
    parts = zip(np.array_split(x, count), np.array_split(y, count), strict=True)
    pairs = [(part_x.mean(), np.median(part_y)) for part_x, part_y in parts if len(part_x)]
    columns = np.array(pairs, dtype=np.float64).reshape(-1, 2).T
    return columns[0], columns[1]
