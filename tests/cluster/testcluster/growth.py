"""Whether a process grew, by the load suite's verdict (docs/load.md)."""

from __future__ import annotations

import statistics
from typing import TypeAlias

import numpy as np
from flatwake_loadtest import verdict
from flatwake_loadtest.memory import PAGE
from flatwake_loadtest.series import Series
from flatwake_loadtest.verdict import Bound, Verdict

Samples: TypeAlias = list[tuple[float, int, float]]
"""Seconds since the beginning, changes until then, bytes."""

MB = 1e6
LIMIT_MB_PER_HOUR = 4.0
"""What the whole interval of the slope has to stay under. At a change a second it is a tenth of
an object at each: a ControllerRevision or a Deployment takes some 10 kB."""


def judge(samples: Samples) -> Verdict:
    """The verdict on the resident memory of the operator that leads."""
    seconds, changes, held = np.array(samples, dtype=np.float64).T
    series = Series("operator", "rss", "bytes", seconds, changes, held, float(PAGE))
    return verdict.judge(series, Bound(LIMIT_MB_PER_HOUR * MB, "hour"))


def figures(samples: Samples, found: Verdict) -> dict[str, object]:
    """The verdict and each minute's median, as they are published."""
    slope = found.per_hour
    interval = slope and [round(end / MB, 2) for end in (slope.low, slope.high)]
    return {
        "rss_mb_each_minute": each_minute(samples),
        "rss_mb_per_hour": slope and {"value": round(slope.value / MB, 2), "interval": interval},
        "rss_mb_per_hour_allowed": found.bound.limit / MB,
        "rss_flatness": found.flatness.value,
    }


def each_minute(samples: Samples) -> list[float]:
    """The medians in MB, minute by minute."""
    minutes: dict[int, list[float]] = {}
    for when, _, held in samples:
        minutes.setdefault(int(when // 60), []).append(held / MB)
    return [round(statistics.median(found), 1) for found in minutes.values()]
