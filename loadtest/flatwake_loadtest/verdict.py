"""The flatness verdict: flat, not flat, or not shown, and never a guess.

A series is judged on what follows the warm-up. `trend` explains the slope and its interval,
`patterns` the shapes that are named. The rules, in this order:

1. A single step that is higher than the whole run may grow is *not shown*: a buffer made once, or
   the first of many. Several that climb higher than that are *not flat*.
2. A first half that rises and a second half that alone is flat is *not shown*: still settling.
3. *not flat*: the slope is surely above nothing and its best estimate is above the bound, or the
   last half or third alone surely grows faster than the bound allows (a leak that begins late).
4. *not shown*: the interval still reaches the bound. The reason says how long a run would tell.
5. *flat*: the interval's upper end is under the bound.

One page (the series' grain) a span is added to both ends of the interval: that much growth could
hide between two samples.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

import numpy as np

from . import patterns
from .patterns import Sawtooth, Step
from .series import Floats, Series
from .trend import LEAST_SAMPLES, Slope, fit

Per = Literal["1000 requests", "hour"]
_UNITS: tuple[Per, ...] = ("1000 requests", "hour")


class Flatness(StrEnum):
    FLAT = "flat"
    NOT_FLAT = "not flat"
    NOT_SHOWN = "not shown"


@dataclass(frozen=True)
class Bound:
    """How much a series may grow: `limit` in its unit, per 1,000 requests or per hour."""

    limit: float
    per: Per = "1000 requests"


@dataclass(frozen=True)
class Verdict:
    """What was found about one series; slopes are in its unit, None where they can't be told."""

    process: str
    kind: str
    unit: str
    flatness: Flatness
    reason: str
    bound: Bound
    per_1000_requests: Slope | None
    per_hour: Slope | None
    steps: tuple[Step, ...]
    sawtooth: Sawtooth | None
    samples: int
    requests: float
    seconds: float

    @property
    def judged(self) -> Slope | None:
        """The slope that the bound speaks about."""
        return self.per_1000_requests if self.bound.per == "1000 requests" else self.per_hour


def judge(series: Series, bound: Bound) -> Verdict:
    """Judges what is given: the caller has cut off the warm-up."""
    steps = patterns.steps(series) if len(series) >= LEAST_SAMPLES else []
    slopes: dict[Per, Slope | None] = {per: slope(series, per, steps) for per in _UNITS}
    teeth = patterns.sawtooth(series)
    flatness, reason = _decide(series, bound, slopes[bound.per], steps)
    return Verdict(
        process=series.process,
        kind=series.kind,
        unit=series.unit,
        flatness=flatness,
        reason=_with_sawtooth(reason, teeth, series.unit),
        bound=bound,
        per_1000_requests=slopes["1000 requests"],
        per_hour=slopes["hour"],
        steps=tuple(steps),
        sawtooth=teeth,
        samples=len(series),
        requests=series.span_requests,
        seconds=series.span_seconds,
    )


def slope(series: Series, per: Per, steps: Sequence[Step] = ()) -> Slope | None:
    """The slope per hour or per 1,000 requests, with one grain's doubt at both ends.

    Steps are levelled out before the line is fitted and then spread over the whole span: they
    count in full as growth, but aren't taken for noise.
    """
    levelled = patterns.without(series, steps)
    x = _axis(series, per)
    found = fit(x, levelled.values)
    if found is None:
        return None
    span = float(x[-1] - x[0])
    return found.shifted(sum(step.height for step in steps) / span).widened(series.grain / span)


def _axis(series: Series, per: Per) -> Floats:
    return series.requests / 1000 if per == "1000 requests" else series.seconds / 3600


def _decide(
    series: Series, bound: Bound, judged: Slope | None, steps: list[Step]
) -> tuple[Flatness, str]:
    if judged is None:
        return Flatness.NOT_SHOWN, _too_little(series)
    unit, limit = series.unit, bound.limit
    rises = [step for step in steps if step.height > 0]
    climbed = sum(step.height for step in steps)
    axis = _axis(series, bound.per)
    whole = float(axis[-1] - axis[0]) * limit
    if len(rises) == 1 and climbed > whole:
        return Flatness.NOT_SHOWN, _one_step(rises[0], unit)
    if len(rises) > 1 and climbed > whole:
        heights = ", ".join(quantity(step.height, unit) for step in rises)
        return Flatness.NOT_FLAT, f"{series.process} grows in {len(rises)} steps: {heights}"
    early, late = slope(series.part(0, 0.5), bound.per), slope(series.part(0.5), bound.per)
    if early and late and late.high < limit <= judged.high and early.value > limit:
        return Flatness.NOT_SHOWN, _SETTLING
    if judged.low > 0 and judged.value > limit:
        return Flatness.NOT_FLAT, f"{series.process} grows by {_rate(judged, bound, unit)}"
    for tail in (late, slope(series.part(2 / 3), bound.per)):
        if not steps and tail and tail.low > limit:
            rate = _rate(tail, bound, unit)
            return Flatness.NOT_FLAT, f"{series.process} grows late, by {rate}"
    if judged.high >= limit:
        return Flatness.NOT_SHOWN, _too_wide(bound, judged, unit)
    named = f"; {len(steps)} step(s), {quantity(climbed, unit)} in all" if steps else ""
    return Flatness.FLAT, f"at most {_upper(judged, bound, unit)}{named}"


_SETTLING = "still settling: the first half rises, the second alone is flat; warm up for longer"


def _too_little(series: Series) -> str:
    if len(series) < LEAST_SAMPLES:
        return f"{len(series)} samples after warm-up, at least {LEAST_SAMPLES} are needed"
    return "no request ended while it was sampled"


def _one_step(step: Step, unit: str) -> str:
    where = f"one step of {quantity(step.height, unit)} after {step.requests:,.0f} requests"
    return f"{where}: made once, or the first of many? A longer warm-up or a longer run tells"


def _too_wide(bound: Bound, judged: Slope, unit: str) -> str:
    reach = _upper(judged, bound, unit)
    # An interval narrows with the span to the power 1.5 while the noise stays the same.
    room = max(bound.limit - judged.value, bound.limit / 4, np.finfo(float).tiny)
    longer = ((judged.high - judged.value) / room) ** (2 / 3)
    times = f"run about {max(longer, 1.2):.1f} × as long"
    return f"too short: the growth may reach {reach}; {times}"


def _with_sawtooth(reason: str, teeth: Sawtooth | None, unit: str) -> str:
    if teeth is None:
        return reason
    return f"{reason}; a sawtooth of {quantity(teeth.height, unit)} every {teeth.period:.0f} s"


def _rate(judged: Slope, bound: Bound, unit: str) -> str:
    low, high = quantity(judged.low, unit), quantity(judged.high, unit)
    return f"{quantity(judged.value, unit)} ({low} to {high}) per {bound.per}"


def _upper(judged: Slope, bound: Bound, unit: str) -> str:
    return f"{quantity(judged.high, unit)} per {bound.per}"


def quantity(value: float, unit: str) -> str:
    """A value in words; kB and MB are 1,000 and 1,000,000 bytes."""
    if unit != "bytes":
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
    if abs(value) >= 1e6:
        return f"{value / 1e6:,.2f} MB"
    return f"{value / 1e3:,.1f} kB"


def worst(verdicts: Iterable[Verdict]) -> Flatness:
    """The verdict of a run: flat only if every series is."""
    order = [Flatness.FLAT, Flatness.NOT_SHOWN, Flatness.NOT_FLAT]
    return max((each.flatness for each in verdicts), key=order.index, default=Flatness.NOT_SHOWN)


def growing(verdicts: Iterable[Verdict]) -> tuple[str, ...]:
    """The processes that have grown, those with the steepest growth against its bound first."""
    excess: dict[str, float] = {}
    for each in verdicts:
        if each.flatness is Flatness.NOT_FLAT:
            ratio = each.judged.value / max(each.bound.limit, 1e-9) if each.judged else 0.0
            excess[each.process] = max(excess.get(each.process, 0.0), ratio)
    return tuple(sorted(excess, key=lambda process: -excess[process]))
