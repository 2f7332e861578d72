"""Shapes that a slope alone would hide: steps, sawtooths, a run that is still settling."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from .series import Floats, Series, block_medians

_MOST_STEPS = 4
_SHARPER = 0.35  # a staircase must leave this much less error than a straight line does
_CLEAR = 4.0  # a step's height in units of the noise around its levels
_SUDDEN = 0.6  # the share of its height that a step climbs within a few samples
_FEW = 5
_LEAST_FALLS = 3
_ENOUGH = 900  # samples to see teeth in
_LEAN = 4.0  # a sawtooth's rise lasts this much longer than its fall


@dataclass(frozen=True)
class Step:
    """A change of level: `height` in the series' unit, at `seconds` and after `requests`."""

    seconds: float
    requests: float
    height: float


@dataclass(frozen=True)
class Sawtooth:
    """Rises that fall back: how high, how often (seconds)."""

    height: float
    period: float


def steps(series: Series) -> list[Step]:
    """The few sudden changes of level that describe a series far better than a line does."""
    x, y = block_medians(series.seconds, series.values)
    if len(y) < 12 or np.ptp(y) == 0:
        return []
    line = np.polyval(np.polyfit(x - x[0], y, 1), x - x[0])
    line_error = float(np.sum((y - line) ** 2))
    cuts: list[int] = []
    for _ in range(_MOST_STEPS):
        cut = _best_cut(y, cuts)
        if cut is None:
            break
        cuts = sorted([*cuts, cut])
        levels = _levels(y, cuts)
        if float(np.sum((y - levels) ** 2)) <= _SHARPER * line_error:
            return _clear_steps(series, x, y, cuts)
    return []


def _best_cut(y: Floats, cuts: list[int]) -> int | None:
    """Where one more cut lowers the squared error most; levels are at least two blocks long."""
    edges = [0, *cuts, len(y)]
    best, best_gain = None, 0.0
    for begin, end in pairwise(edges):
        length = end - begin
        if length < 4:
            continue
        left = np.arange(2, length - 1)
        sums = np.cumsum(y[begin:end])
        below = sums[left - 1] / left
        above = (sums[-1] - sums[left - 1]) / (length - left)
        gains = left * (length - left) / length * (below - above) ** 2
        most = int(np.argmax(gains))
        if gains[most] > best_gain:
            best, best_gain = begin + int(left[most]), float(gains[most])
    return best


def _levels(y: Floats, cuts: list[int]) -> Floats:
    parts = [np.full(len(part), part.mean()) for part in np.split(y, cuts)]
    levels: Floats = np.concatenate(parts)
    return levels


def _clear_steps(series: Series, x: Floats, y: Floats, cuts: list[int]) -> list[Step]:
    levels = _levels(y, cuts)
    noise = float(np.sqrt(np.sum((y - levels) ** 2) / max(len(y) - len(cuts) - 1, 1)))
    places = []
    for cut in cuts:
        height = float(levels[cut] - levels[cut - 1])
        if abs(height) < _CLEAR * max(noise, series.grain / 2):
            continue
        at = _sudden(series, float(x[cut - 2]), float(x[min(cut + 1, len(x) - 1)]), height)
        if at is not None:
            places.append(at)
    # A block that holds the jump blurs its level; the samples on both sides don't.
    levels = np.array([np.median(part) for part in np.split(series.values, places)])
    return [
        Step(float(series.seconds[at]), float(series.requests[at]), float(height))
        for at, height in zip(places, np.diff(levels), strict=True)
    ]


def _sudden(series: Series, begin: float, end: float, height: float) -> int | None:
    """The sample at which the level jumps; None where it climbs slowly, which is no step."""
    y = series.values
    first = max(int(np.searchsorted(series.seconds, begin)), _FEW)
    last = min(int(np.searchsorted(series.seconds, end)), len(y) - _FEW)
    if last <= first:
        return None
    medians = np.median(sliding_window_view(y[first - _FEW : last + _FEW], _FEW), axis=1)
    jumps = medians[_FEW:] - medians[:-_FEW]
    sharpest = int(np.argmax(np.abs(jumps)))
    return first + sharpest if jumps[sharpest] / height >= _SUDDEN else None


def without(series: Series, found: Sequence[Step]) -> Series:
    """The series with its steps levelled out."""
    values = series.values.copy()
    for step in found:
        values[series.seconds >= step.seconds] -= step.height
    return replace(series, values=values)


def sawtooth(series: Series) -> Sawtooth | None:
    """Slow rises with quick falls, at least three of them; None if there is no such thing."""
    if len(series) < 24:
        return None
    every = -(-len(series) // _ENOUGH)
    seconds, values = series.seconds[::every], series.values[::every]
    y = values - np.polyval(np.polyfit(seconds, values, 1), seconds)
    low, high = np.percentile(y, [5, 95])
    turns = _turning_points(y, float(high - low) / 2)
    legs = np.diff(turns)
    heights = np.diff(y[turns])
    rises, falls = legs[heights > 0], legs[heights < 0]
    if len(falls) < _LEAST_FALLS or len(rises) < _LEAST_FALLS:
        return None
    if float(np.median(rises)) < _LEAN * float(np.median(falls)):
        return None
    tops = np.array([b for b, height in zip(turns[1:], heights, strict=True) if height > 0])
    period = float(np.median(np.diff(seconds[tops])))
    return Sawtooth(float(np.median(np.abs(heights))), period)


def _turning_points(y: Floats, least: float) -> list[int]:
    """Indices where y turns after having moved by more than `least`."""
    if least <= 0:
        return [0]
    turns, top, bottom, direction = [0], 0, 0, 0
    for i in range(1, len(y)):
        top = i if y[i] > y[top] else top
        bottom = i if y[i] < y[bottom] else bottom
        if direction >= 0 and y[top] - y[i] > least:
            turns, direction, bottom = [*turns, top], -1, i
        elif direction <= 0 and y[i] - y[bottom] > least:
            turns, direction, top = [*turns, bottom], 1, i
    return turns
