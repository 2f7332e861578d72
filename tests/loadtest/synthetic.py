"""Synthetic memory: noise that remembers, leaks, steps, teeth, caches that fill."""

from __future__ import annotations

import numpy as np
from flatwake_loadtest.series import Floats, Series

PAGE = 4096


def noise(rng: np.random.Generator, count: int, correlation: float, deviation: float) -> Floats:
    """AR(1) noise [count] with this lag-one correlation and standard deviation in bytes."""
    lead = 300
    shocks = rng.normal(size=count + lead) * deviation * np.sqrt(1 - correlation**2)
    out = np.zeros(count + lead)
    for i in range(1, count + lead):
        out[i] = correlation * out[i - 1] + shocks[i]
    return out[lead:]


def resident(extra: Floats, requests: float, process: str = "engine") -> Series:
    """What a process shows that holds 200 MB and `extra` bytes: whole pages, a sample a second."""
    count = len(extra)
    return Series(
        process=process,
        kind="rss_anon",
        unit="bytes",
        seconds=np.arange(count, dtype=np.float64),
        requests=np.floor(np.linspace(0, requests, count)),
        values=np.floor((200e6 + extra) / PAGE) * PAGE,
        grain=PAGE,
    )
