"""The slope of a sampled quantity, with an interval that can be trusted.

**Estimator.** Theil–Sen (the median of the slopes between all pairs of points) on the medians of
at most 40 consecutive blocks: a spike, a garbage collector's hiccup or a burst can't move it.

**Interval.** Sen's rank interval, with the variance of Kendall's S widened for autocorrelation
as Hamed and Rao do (1998): memory is remembered from sample to sample, and an interval that takes
samples for independent is far too narrow. The correlation is taken as AR(1), estimated from the
residuals' lag one with the small-sample correction for a detrended series, (n·r + 2)/(n − 4).

No end is further from the estimate than one and a half times what the medians moved in all: the
ranks of a series that stands still but for a page or two would else be those of neighbouring
blocks, a page apart within seconds.

**Why not another.** On AR(1) noise without a trend (600 samples, the same 40 blocks), intervals of
95 % cover the true slope so often:

| correlation of neighbouring samples     | 0    | 0.9  | 0.97 | 0.99 |
|-----------------------------------------|------|------|------|------|
| this one                                | 96 % | 94 % | 96 % | 95 % |
| least squares, fixed-b errors (b = 0.5) | 92 % | 87 % | 82 % | 67 % |
| moving-block bootstrap of residuals     | 82 % | 79 % | 71 % | 50 % |

It also needs no random numbers, so that a report can be checked. `tests/loadtest` measures the
rates again.
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

from .series import Floats, block_medians

CONFIDENCE = 0.95
LEAST_SAMPLES = 24
_STRONGEST = 0.97
_WIDEST = 1.5


@dataclass(frozen=True)
class Slope:
    """Change of y a unit of x: best estimate and the ends of its two-sided 95 % interval.

    `effective` is how many independent points the series is worth.
    """

    value: float
    low: float
    high: float
    effective: float

    def shifted(self, by: float) -> Slope:
        return Slope(self.value + by, self.low + by, self.high + by, self.effective)

    def widened(self, by: float) -> Slope:
        return Slope(self.value, self.low - by, self.high + by, self.effective)


def fit(x: Floats, y: Floats) -> Slope | None:
    """The slope of y over x [n]; None when there are too few samples or x stands still."""
    if len(x) < LEAST_SAMPLES or x[-1] <= x[0]:
        return None
    points_x, points_y = block_medians(x, y)
    slopes = _pairwise(points_x, points_y)
    if len(slopes) < len(points_x):
        return None
    value = float(np.median(slopes))
    count = len(points_x)
    inflation = _inflation(points_y - value * points_x)
    low, high = _rank_interval(slopes, count, inflation)
    most = _WIDEST * float(np.ptp(points_y)) / float(points_x[-1] - points_x[0])
    return Slope(value, max(low, value - most), min(high, value + most), count / inflation)


def _pairwise(x: Floats, y: Floats) -> Floats:
    """The sorted slopes between all pairs of points whose x differ."""
    first, second = np.triu_indices(len(x), 1)
    run = x[second] - x[first]
    apart = run > 0
    slopes: Floats = (y[second] - y[first])[apart] / run[apart]
    slopes.sort()
    return slopes


def _inflation(residuals: Floats) -> float:
    """By how much autocorrelation widens the variance of S, at least 1."""
    count = len(residuals)
    centred = residuals - np.median(residuals)
    energy = float(centred @ centred)
    if energy == 0.0:
        return 1.0
    lag_one = float(centred[1:] @ centred[:-1]) / energy
    rho = float(np.clip((count * lag_one + 2) / (count - 4), 0.0, _STRONGEST))
    lags = np.arange(1, count)
    return max(1.0, float(1 + 2 * np.sum((1 - lags / count) * rho**lags)))


def _rank_interval(slopes: Floats, count: int, inflation: float) -> tuple[float, float]:
    """Sen's interval: the slopes whose ranks lie z deviations of S around the middle."""
    z = NormalDist().inv_cdf((1 + CONFIDENCE) / 2)
    deviation = z * float(np.sqrt(count * (count - 1) * (2 * count + 5) / 18 * inflation))
    pairs = len(slopes)
    low = int(max(np.floor((pairs - deviation) / 2) - 1, 0))
    high = int(min(np.ceil((pairs + deviation) / 2), pairs - 1))
    return float(slopes[low]), float(slopes[high])
