"""The soak's verdict on the operator's memory, on series whose growth is known."""

from __future__ import annotations

import numpy as np
import pytest
from flatwake_loadtest.verdict import Flatness
from testcluster import growth
from testcluster.growth import Samples

PACE_S, SAMPLE_S = 1.0, 10.0
RESYNC_S, RESYNC_BYTES, RESYNC_LASTS_S = 60.0, 3e6, 2.0
NOISE_BYTES = 2e5
ONE_OBJECT = 10e3
"""What a server's ControllerRevision or Deployment takes."""


def sampled(seed: int, kept_each_change: float) -> Samples:
    """Half an hour of an operator that lists everything each minute and keeps some bytes of each
    change."""
    chance = np.random.default_rng(seed)
    made: Samples = []
    for when in np.arange(0.0, 1800.0, SAMPLE_S):
        listing = RESYNC_BYTES * (when % RESYNC_S < RESYNC_LASTS_S)
        noise = float(chance.normal(0, NOISE_BYTES))
        changes = int(when / PACE_S)
        made.append((float(when), changes, 97e6 + listing + noise + kept_each_change * changes))
    return made


@pytest.mark.parametrize("seed", range(20))
def test_a_part_of_one_object_kept_at_each_change_is_growth(seed: int) -> None:
    found = growth.judge(sampled(seed, ONE_OBJECT / 4))
    assert found.flatness is Flatness.NOT_FLAT
    assert found.per_hour is not None
    assert found.per_hour.low < ONE_OBJECT / 4 * 3600 / PACE_S < found.per_hour.high


@pytest.mark.parametrize("seed", range(20))
def test_lists_that_come_and_go_are_none(seed: int) -> None:
    found = growth.judge(sampled(seed, 0.0))
    assert found.flatness is Flatness.FLAT, found.reason


def test_figures_tell_the_slope_with_its_interval_and_each_minute() -> None:
    samples = sampled(0, ONE_OBJECT)
    told = growth.figures(samples, growth.judge(samples))
    assert told["rss_flatness"] == "not flat"
    assert told["rss_mb_per_hour_allowed"] == growth.LIMIT_MB_PER_HOUR
    slope = told["rss_mb_per_hour"]
    assert isinstance(slope, dict)
    low, high = slope["interval"]
    assert low <= slope["value"] <= high
    assert slope["value"] == pytest.approx(36, rel=0.05)
    minutes = told["rss_mb_each_minute"]
    assert isinstance(minutes, list)
    assert len(minutes) == 30
