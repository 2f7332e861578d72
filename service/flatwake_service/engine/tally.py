"""What the steps took: counts and histograms by phase, since start."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

from flatwake_service.engine.batch import Chunk, Result
from flatwake_service.engine.messages import ROWS_BOUNDS, SECONDS_BOUNDS, StepHistogram


class Histogram:
    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self._sum = 0.0

    def observe(self, value: float) -> None:
        self._counts[bisect_left(self._bounds, value)] += 1
        self._sum += value

    def read(self) -> StepHistogram:
        return StepHistogram(tuple(self._counts), self._sum)


class Tally:
    """Seconds and rows of each part of a step: its decode rows, and each of its chunks."""

    def __init__(self) -> None:
        self.bytes = 0
        self.decode_seconds = Histogram(SECONDS_BOUNDS)
        self.decode_rows = Histogram(ROWS_BOUNDS)
        self.prefill_seconds = Histogram(SECONDS_BOUNDS)
        self.prefill_rows = Histogram(ROWS_BOUNDS)

    def observe(self, result: Result) -> None:
        self.bytes += result.bytes
        rows = sum(entry.count for entry in result.entries)
        if isinstance(result.entries[0], Chunk):
            self.prefill_seconds.observe(result.seconds)
            self.prefill_rows.observe(rows)
        else:
            self.decode_seconds.observe(result.seconds)
            self.decode_rows.observe(rows)
