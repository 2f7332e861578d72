"""Latencies by the million in constant memory: counts in buckets of 1 %, mean and ends exact."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

_BASE = math.log(1.01)
_ZERO = -(1 << 30)
PERCENTILES = (50.0, 90.0, 99.0, 99.9)


@dataclass
class Distribution:
    """Values in seconds; a percentile is right to 0.5 %."""

    buckets: Counter[int] = field(default_factory=Counter)
    count: int = 0
    total: float = 0.0
    low: float = math.inf
    high: float = 0.0

    @classmethod
    def of(cls, values: Iterable[float]) -> Distribution:
        out = cls()
        for value in values:
            out.add(value)
        return out

    def add(self, value: float) -> None:
        self.buckets[round(math.log(value) / _BASE) if value > 0 else _ZERO] += 1
        self.count += 1
        self.total += value
        self.low, self.high = min(self.low, value), max(self.high, value)

    def merge(self, other: Distribution) -> None:
        self.buckets.update(other.buckets)
        self.count += other.count
        self.total += other.total
        self.low, self.high = min(self.low, other.low), max(self.high, other.high)

    @property
    def mean(self) -> float | None:
        return self.total / self.count if self.count else None

    def percentile(self, percent: float) -> float | None:
        """The smallest value that so many percent don't exceed; None without values."""
        wanted, seen = self.count * percent / 100, 0
        for bucket in sorted(self.buckets):
            seen += self.buckets[bucket]
            if seen >= wanted:
                value = 0.0 if bucket == _ZERO else math.exp(bucket * _BASE)
                return min(max(value, self.low), self.high)
        return None

    def curve(self) -> tuple[list[float], list[float]]:
        """(values, share of all that don't exceed them), for a plot."""
        values, shares, seen = [], [], 0
        for bucket in sorted(self.buckets):
            seen += self.buckets[bucket]
            values.append(0.0 if bucket == _ZERO else math.exp(bucket * _BASE))
            shares.append(seen / self.count)
        return values, shares

    def as_json(self) -> dict[str, float | int | None]:
        """Milliseconds, as they are read."""

        def ms(value: float | None) -> float | None:
            return None if value is None else round(value * 1000, 4)

        out: dict[str, float | int | None] = {"count": self.count, "mean_ms": ms(self.mean)}
        for percent in PERCENTILES:
            out[f"p{percent:g}_ms"] = ms(self.percentile(percent))
        out["max_ms"] = ms(self.high) if self.count else None
        return out
