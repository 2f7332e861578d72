"""The flatness verdict is tested both ways, over many seeds, with its error rates asserted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import numpy as np
import pytest
from flatwake_loadtest.series import Floats, Series
from flatwake_loadtest.trend import fit
from flatwake_loadtest.verdict import Bound, Flatness, Verdict, growing, judge, quantity, worst
from synthetic import noise, resident

SEEDS = range(100)
LEAK = 2_000.0  # bytes a request
SHORT = (450, 300.0, Bound(1e6))  # what is left of 400 requests in 10 minutes
HOUR = (2700, 4000.0, Bound(3e5))

Growth = Callable[[np.random.Generator, Floats], Floats]


def verdicts(run: tuple[int, float, Bound], growth: Growth) -> list[Verdict]:
    count, requests, bound = run
    done = np.linspace(0, requests, count)
    found = []
    for seed in SEEDS:
        extra = growth(np.random.default_rng(seed), done)
        found.append(judge(resident(extra, requests), bound))
    return found


def rates(run: tuple[int, float, Bound], growth: Growth) -> Counter[Flatness]:
    counted = Counter(each.flatness for each in verdicts(run, growth))
    print({flatness.value: times for flatness, times in counted.items()}, "seeds", SEEDS)
    return counted


@pytest.mark.parametrize("run", [SHORT, HOUR], ids=["short", "hour"])
@pytest.mark.parametrize(("correlation", "deviation"), [(0.0, 1e5), (0.9, 2e4), (0.9, 1e5)])
def test_noise_without_a_leak_is_rarely_called_growth(
    run: tuple[int, float, Bound], correlation: float, deviation: float
) -> None:
    counted = rates(run, lambda rng, done: noise(rng, len(done), correlation, deviation))
    assert counted[Flatness.NOT_FLAT] <= 2
    assert counted[Flatness.FLAT] >= (75 if run is SHORT else 100)


@pytest.mark.parametrize("run", [SHORT, HOUR], ids=["short", "hour"])
@pytest.mark.parametrize(("correlation", "deviation"), [(0.0, 1e5), (0.9, 1e5), (0.98, 1e5)])
def test_a_leak_of_2_kb_a_request_is_never_called_flat(
    run: tuple[int, float, Bound], correlation: float, deviation: float
) -> None:
    counted = rates(
        run, lambda rng, done: noise(rng, len(done), correlation, deviation) + LEAK * done
    )
    assert counted[Flatness.FLAT] == 0
    # With noise that remembers for a minute, 7 minutes are too short to tell: that is said.
    assert counted[Flatness.NOT_FLAT] >= (45 if run is SHORT and correlation > 0.95 else 97)


@pytest.mark.parametrize("correlation", [0.0, 0.5, 0.9, 0.97])
def test_the_interval_covers_the_true_slope_as_often_as_it_says(correlation: float) -> None:
    x = np.arange(600.0)
    hits = 0
    for seed in range(300):
        found = fit(x, noise(np.random.default_rng(seed), 600, correlation, 1.0) + 0.01 * x)
        assert found is not None
        hits += found.low <= 0.01 <= found.high
    print(f"correlation {correlation}: covered {hits / 3:.1f} % of 300 seeds")
    assert 0.93 <= hits / 300 <= 0.995


def test_growth_that_only_shows_in_whole_pages_is_found() -> None:
    # 2 kB a request is a page every two requests: most samples show no change at all.
    assert rates(SHORT, lambda _, done: LEAK * done)[Flatness.NOT_FLAT] == len(SEEDS)


def test_memory_that_never_moves_is_flat_with_one_page_of_doubt() -> None:
    verdict = judge(resident(np.zeros(450), 300), Bound(1e6))
    assert verdict.flatness is Flatness.FLAT
    assert verdict.judged is not None
    assert verdict.judged.high == pytest.approx(4096 / 0.3)


def test_a_page_or_two_in_a_whole_run_is_not_taken_for_noise() -> None:
    # As measured on an engine: 8 kB in 300 requests. Its upper end must stay near what it moved.
    done = np.linspace(0, 300, 800)
    extra = 4096.0 * ((done > 40).astype(float) + (done > 110))
    verdict = judge(resident(extra, 300), Bound(1e5))
    assert verdict.flatness is Flatness.FLAT, verdict.reason
    assert verdict.judged is not None
    assert verdict.judged.high < 8e4


def test_falling_memory_is_flat() -> None:
    fell = rates(SHORT, lambda rng, done: noise(rng, len(done), 0.5, 2e4) - LEAK * done)
    assert fell[Flatness.FLAT] == len(SEEDS)


@pytest.mark.parametrize("run", [SHORT, HOUR], ids=["short", "hour"])
def test_one_big_step_is_named_and_never_called_flat(run: tuple[int, float, Bound]) -> None:
    def jump(rng: np.random.Generator, done: Floats) -> Floats:
        at = rng.uniform(0.1, 0.95) * done[-1]
        return noise(rng, len(done), 0.5, 2e4) + 3e6 * (done > at)

    found = verdicts(run, jump)
    assert all(each.flatness is Flatness.NOT_SHOWN for each in found)
    assert all("one step of" in each.reason for each in found)
    assert all(abs(each.steps[0].height - 3e6) < 2e5 for each in found)


def test_one_small_step_is_allowed_and_named() -> None:
    def jump(rng: np.random.Generator, done: Floats) -> Floats:
        return noise(rng, len(done), 0.5, 2e4) + 5e5 * (done > rng.uniform(0.1, 0.9) * done[-1])

    found = verdicts(HOUR, jump)
    assert all(each.flatness is Flatness.FLAT and len(each.steps) == 1 for each in found)
    # It counts as growth in full: 500 kB over 4,000 requests.
    assert all(each.judged is not None and each.judged.value > 1.1e5 for each in found)


def test_a_leak_that_an_allocator_hides_in_large_grains_is_found() -> None:
    def arenas(rng: np.random.Generator, done: Floats) -> Floats:
        return np.floor((LEAK * done + rng.random() * 2**20) / 2**20) * 2**20

    assert rates(HOUR, arenas)[Flatness.NOT_FLAT] == len(SEEDS)
    short = verdicts(SHORT, lambda rng, done: np.floor(LEAK * done / 131072) * 131072)
    assert all(each.flatness is Flatness.NOT_FLAT for each in short)


def teeth(rng: np.random.Generator, done: Floats) -> Floats:
    phase = (np.arange(len(done)) + int(rng.integers(60))) % 60
    return noise(rng, len(done), 0.5, 2e4) + 2e6 * phase / 60


def test_a_sawtooth_is_named_and_is_no_leak() -> None:
    found = verdicts(HOUR, teeth)
    assert all(each.flatness is Flatness.FLAT for each in found)
    assert all(each.sawtooth is not None and 58 <= each.sawtooth.period <= 62 for each in found)
    assert "sawtooth" in found[0].reason


def test_a_leak_under_a_sawtooth_is_found_and_short_runs_say_so() -> None:
    leaking = rates(HOUR, lambda rng, done: teeth(rng, done) + LEAK * done)
    assert leaking[Flatness.NOT_FLAT] == len(SEEDS)
    assert rates(SHORT, lambda rng, done: teeth(rng, done) + LEAK * done)[Flatness.FLAT] == 0


def test_plain_noise_is_no_sawtooth_and_has_no_steps() -> None:
    found = verdicts(HOUR, lambda rng, done: noise(rng, len(done), 0.9, 1e5))
    assert sum(each.sawtooth is not None for each in found) == 0
    assert sum(bool(each.steps) for each in found) <= 3


def filling(rng: np.random.Generator, done: Floats, waited: float) -> Floats:
    age = np.arange(len(done)) / len(done) + waited
    return noise(rng, len(done), 0.5, 2e4) - 3e6 * np.exp(-8 * age)


def test_a_cache_that_still_fills_is_asked_to_warm_up_for_longer() -> None:
    found = verdicts(SHORT, lambda rng, done: filling(rng, done, waited=0.0))
    counted = Counter(each.flatness for each in found)
    assert counted[Flatness.FLAT] == 0
    assert counted[Flatness.NOT_SHOWN] >= 95
    assert sum("settling" in each.reason for each in found) >= 90


def test_a_cache_that_has_filled_is_flat() -> None:
    counted = rates(SHORT, lambda rng, done: filling(rng, done, waited=1.0))
    assert counted[Flatness.FLAT] == len(SEEDS)


@pytest.mark.parametrize("run", [SHORT, HOUR], ids=["short", "hour"])
def test_a_leak_that_begins_late_is_found(run: tuple[int, float, Bound]) -> None:
    def late(rng: np.random.Generator, done: Floats) -> Floats:
        return noise(rng, len(done), 0.5, 2e4) + 2 * LEAK * np.maximum(0, done - 0.7 * done[-1])

    assert rates(run, late)[Flatness.NOT_FLAT] >= 98


def test_a_random_walk_is_never_surely_growing() -> None:
    def walk(rng: np.random.Generator, done: Floats) -> Floats:
        return np.cumsum(rng.normal(size=len(done))) * 4096

    assert rates(HOUR, walk)[Flatness.NOT_FLAT] <= 2


def test_spikes_do_not_move_the_slope() -> None:
    rng = np.random.default_rng(7)
    extra = noise(rng, 450, 0.5, 2e4)
    extra[rng.choice(450, 20, replace=False)] += 50e6
    verdict = judge(resident(extra, 300), Bound(1e6))
    assert verdict.flatness is Flatness.FLAT, verdict.reason


def test_too_few_samples_show_nothing() -> None:
    verdict = judge(resident(np.zeros(10), 100), Bound(1e6))
    assert verdict.flatness is Flatness.NOT_SHOWN
    assert "10 samples" in verdict.reason
    idle = judge(resident(np.zeros(100), 0), Bound(1e6))
    assert idle.flatness is Flatness.NOT_SHOWN
    assert "no request" in idle.reason


def test_a_bound_per_hour_is_judged_per_hour() -> None:
    extra = np.linspace(0, 1e6, 1800)  # 2 MB an hour over half an hour
    assert judge(resident(extra, 10), Bound(3e6, "hour")).flatness is Flatness.FLAT
    grown = judge(resident(extra, 10), Bound(1e6, "hour"))
    assert grown.flatness is Flatness.NOT_FLAT
    assert grown.judged is not None
    assert grown.judged.value == pytest.approx(2e6, rel=0.02)


def test_the_process_that_grows_is_named() -> None:
    rng = np.random.default_rng(3)
    done = np.linspace(0, 300, 450)
    both: list[Series] = [
        resident(noise(rng, 450, 0.5, 2e4), 300, "api"),
        resident(noise(rng, 450, 0.5, 2e4) + LEAK * done, 300, "engine"),
    ]
    found = [judge(series, Bound(1e6)) for series in both]
    assert growing(found) == ("engine",)
    assert found[1].reason.startswith("engine grows by")
    assert worst(found) is Flatness.NOT_FLAT
    assert worst(found[:1]) is Flatness.FLAT
    assert worst([]) is Flatness.NOT_SHOWN


@pytest.mark.parametrize(
    ("value", "unit", "words"),
    [
        (3380.4, "count", "3,380"),
        (0.2651, "count", "0.265"),
        (306e3, "bytes", "306.0 kB"),
        (-2e6, "bytes", "-2.00 MB"),
    ],
)
def test_quantities_are_written_out(value: float, unit: str, words: str) -> None:
    assert quantity(value, unit) == words
