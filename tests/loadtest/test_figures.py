"""Figures of waves whose right values are known by hand."""

from __future__ import annotations

import numpy as np
import pytest
from flatwake_loadtest import figures
from flatwake_loadtest.distribution import Distribution
from played import answer, played


def test_percentiles_are_right_to_half_a_percent() -> None:
    values = np.random.default_rng(5).lognormal(-4, 1, 20_000)
    seen = Distribution.of(values)
    for percent in (50, 90, 99, 99.9):
        exact = float(np.percentile(values, percent))
        assert seen.percentile(percent) == pytest.approx(exact, rel=0.012)
    assert seen.mean == pytest.approx(values.mean())
    assert seen.high == values.max()


def test_distributions_add_up() -> None:
    one, two = Distribution.of([0.001, 0.002]), Distribution.of([0.0, 0.5])
    one.merge(two)
    assert (one.count, one.high, one.low) == (4, 0.5, 0.0)
    assert one.percentile(100) == pytest.approx(0.5, rel=0.005)
    assert Distribution().percentile(50) is None
    assert Distribution().as_json()["mean_ms"] is None


def test_speed_counts_the_tokens_inside_the_steady_part() -> None:
    # Two streams of 100 tokens/s from 0.1 s to 10.1 s; the steady part is from 2 to 8 s.
    streams = [answer(tokens=1000) for _ in range(2)]
    wave = played("steady", streams, marks=[("steady", 2.0, 2), ("end", 8.0, 0)])
    assert figures.of(wave).aggregate == pytest.approx(200, rel=0.01)


def test_only_what_falls_in_the_steady_part_counts_for_latency() -> None:
    slow = answer(sent=0.5, first=1.0)
    fair = answer(sent=3.0, first=0.2)
    wave = played("steady", [slow, fair], marks=[("steady", 2.0, 2), ("end", 8.0, 0)])
    assert figures.of(wave).first.high == 0.2


def test_events_that_hold_several_tokens_count_in_full() -> None:
    wave = played("steady", [answer(tokens=50, usage=100)], marks=[("end", 1.0, 0)])
    found = figures.of(wave)
    assert found.tokens == 100
    assert found.aggregate == pytest.approx(100, rel=0.03)


def test_rising_speeds_have_an_error() -> None:
    rng = np.random.default_rng(1)
    answers = [answer(sent=float(at), tokens=1, first=0.0) for at in rng.uniform(0, 10, 1000)]
    marks = [("steady", 0.0, 1), ("settle", 5.0, 0), ("steady", 5.0, 4), ("end", 10.0, 0)]
    one, four = figures.of(played("rising", answers, marks=marks)).more["steps"]
    assert (one["users"], four["users"]) == (1, 4)
    for step in (one, four):
        assert step["tokens_per_second"] == pytest.approx(100, rel=0.15)
        # A thousand random arrivals: 500 in 5 s scatter by √500.
        assert 1.5 < step["standard_error"] < 9


def test_a_join_shows_what_the_others_felt() -> None:
    running = [answer(tokens=300, tag="running") for _ in range(3)]
    # One gap of 80 ms while the fourth user's prompt is read.
    running[0].stamps = [s if s < 1.5 else s + 0.07 for s in running[0].stamps]
    joiner = answer(sent=1.45, first=0.2, tokens=5, tag="joiner")
    more = figures.of(played("join", [*running, joiner])).more
    assert more["join_ttft_ms"] == pytest.approx(200)
    assert more["others_largest_gap_ms"] == pytest.approx(80, rel=0.01)
    assert more["others_median_gap_ms"] == pytest.approx(10, rel=0.01)


def test_depth_is_seen_in_windows_of_fifty() -> None:
    more = figures.of(played("depth", [answer(tokens=151)])).more
    assert [window["depth"] for window in more["windows"]] == [20, 70, 120]
    assert all(w["tokens_per_second"] == pytest.approx(100) for w in more["windows"])


def test_a_run_of_days_keeps_no_answer_that_was_served() -> None:
    answers = [answer(sent=float(index)) for index in range(100)] + [answer("broken")]
    wave = played("endurance", answers)
    assert [each.outcome for each in wave.answers] == ["broken"]
    found = figures.of(wave)
    assert found.outcomes == {"length": 100, "broken": 1}
    assert found.gap.count == 900
    assert found.per_user == pytest.approx(100)
    assert sum(wave.totals.arrived.values()) == pytest.approx(1010)
