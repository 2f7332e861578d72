"""All checks of a run: what it must hold, wave by wave and as a whole."""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass
from itertools import pairwise

from . import correctness, counters, memory
from .bounds import Bounds, Gate
from .checks import Check, State, check
from .figures import Figures
from .memory import Sample
from .metrics import Scrape
from .record import Played, Record
from .verdict import Flatness, Verdict, growing, judge

_STATES = {
    Flatness.FLAT: State.HOLDS,
    Flatness.NOT_FLAT: State.FAILS,
    Flatness.NOT_SHOWN: State.NOT_SHOWN,
}


@dataclass(frozen=True)
class Judged:
    """A memory verdict of one wave and what hangs on it."""

    wave: str
    verdict: Verdict
    gate: Gate


def checks(
    record: Record,
    samples: list[Sample],
    figures: list[Figures],
    judged: list[Judged],
    bounds: Bounds,
) -> list[Check]:
    found: list[Check] = []
    for played in record.played:
        found += correctness.checks(played, record.plan.seed)
        found += counters.checks(played, bounds)
    found += agreement(record, bounds)
    found += honesty(samples, bounds)
    found += [rising(each, bounds) for each in figures if each.name == "rising 1 to 8"]
    found += flatness(judged)
    found += unseen(record, judged, bounds)
    missing = [name for name, played in record.waves.items() if not played.marks]
    found.append(check("every wave was played", "", missing, f"{len(record.waves)} waves"))
    return found


def verdicts(record: Record, samples: list[Sample], bounds: Bounds) -> list[Judged]:
    """The flatness of everything that is bounded, in each endurance wave after its warm-up."""
    found = []
    for played in record.played:
        if played.wave.target != "ours":
            continue
        for mark, end in played.parts("judged"):
            for series in memory.series(samples, mark.at, end):
                bound = bounds.of(series.kind, played.wave.requests)
                if bound is not None and series.values.any():
                    found.append(Judged(played.wave.name, judge(series, bound[0]), bound[1]))
    return found


def honesty(samples: list[Sample], bounds: Bounds) -> list[Check]:
    """The memory that /metrics shows against what the kernel says, where it can be asked."""
    found = []
    for process in sorted({process for sample in samples for process, _ in sample.values}):
        own, seen = (process, "rss"), (process, f"rss{memory.SEEN}")
        pairs = [
            (sample.values[own], sample.values[seen])
            for sample in samples
            if own in sample.values and seen in sample.values
        ]
        if not pairs:
            continue
        ours, theirs = (statistics.median(values) for values in zip(*pairs, strict=True))
        figures = f"/proc {theirs / 1e6:.1f} MB, /metrics {ours / 1e6:.1f} MB"
        wrong = [] if bounds.agreement["memory"].allows(theirs, ours) else [figures]
        about = f"the memory that the server shows is the kernel's, {process}"
        found.append(check(about, "", wrong, figures))
    return found


def flatness(judged: list[Judged]) -> list[Check]:
    found = []
    for each in judged:
        verdict = each.verdict
        state = _STATES[verdict.flatness]
        required = each.gate == "flat" or (
            each.gate == "not_growing" and verdict.flatness is Flatness.NOT_FLAT
        )
        about = f"{verdict.process} {verdict.kind} is flat"
        found.append(Check(about, state, verdict.reason, each.wave, required))
    return found


def unseen(record: Record, judged: list[Judged], bounds: Bounds) -> list[Check]:
    """An endurance run whose server's memory nobody could see has shown nothing about it."""
    seen = {each.wave for each in judged if each.verdict.kind == "rss"}
    found = []
    for played in record.played:
        bound = bounds.of("rss", played.wave.requests)
        if played.wave.kind == "endurance" and played.wave.name not in seen and bound:
            detail = "the server has no metrics of memory, and its processes aren't here"
            required = bound[1] == "flat"
            found.append(
                Check("memory is flat", State.NOT_SHOWN, detail, played.wave.name, required)
            )
    return found


def culprits(judged: list[Judged]) -> tuple[str, ...]:
    """The processes that grow, by the verdicts that count."""
    return growing(each.verdict for each in judged if each.gate != "report")


def rising(figures: Figures, bounds: Bounds) -> Check:
    """Aggregate speed must never fall when a user joins, by more than it scatters."""
    wrong = []
    steps = figures.more["steps"]
    for few, many in pairwise(steps):
        speed, next_speed = few["tokens_per_second"], many["tokens_per_second"]
        scatter = 2 * math.hypot(few["standard_error"], many["standard_error"])
        if next_speed < speed - max(scatter, bounds.rising * speed):
            wrong.append(
                f"{few['users']} → {many['users']} users: {speed:.0f} → {next_speed:.0f} tokens/s"
            )
    right = " → ".join(f"{each['tokens_per_second']:.0f}" for each in steps)
    about = "aggregate speed never falls when a user joins"
    if wrong and figures.lag > bounds.starved:
        detail = "; ".join(wrong) + _late(figures.lag)
        return Check(about, State.NOT_SHOWN, detail, figures.name, required=False)
    return check(about, figures.name, wrong, f"{right} tokens/s")


def _late(lag: float) -> str:
    """A starved client can't tell a slow server from its own wait."""
    return f"; the client itself came {lag * 1000:.1f} ms late: free a core for it"


def agreement(record: Record, bounds: Bounds) -> list[Check]:
    """The server's histograms against the client's clock, over waves that nobody left early.

    The server counts until a token has left, the client until it has read it. In between a client
    may have to wait for its own turn: that time isn't the server's, and is taken off wherever the
    kernel says how long it was. Where it says only that it was so long at most, the client's figure
    is a range, and the server's has to agree with all of it; one that agrees with none is wrong.
    Where the kernel says nothing, a client that is late can't judge.
    """
    found = []
    for played in record.played:
        if played.wave.kind not in ("steady", "endurance") or len(played.rests) < 2:
            continue
        before, after = played.rests["begin"].scrape, played.rests["end"].scrape
        ours = _client_means(played)
        for name, metric in _HISTOGRAMS.items():
            theirs, mine = _mean(before, after, metric), ours[name]
            if theirs is not None and mine is not None:
                found.append(_compared(played, name, mine, theirs, bounds))
    return found


_HISTOGRAMS = {"gap": "inter_token_seconds", "first_token": "time_to_first_token_seconds"}
_WORDS = {"gap": "mean gap", "first_token": "mean time to first token"}
_Range = tuple[float, float]


def _client_means(played: Played) -> dict[str, _Range | None]:
    """Least and largest means of what the server can know of: until the tokens came."""
    totals = played.totals
    spans, first, doubt = totals.spans, totals.first.total, 0.0
    if totals.timed:
        spans, first = spans - totals.late_spans, first - totals.late_first
        doubt = totals.doubt
    gaps, firsts = totals.gaps, totals.first.count
    return {
        "gap": (spans / gaps, (spans + doubt) / gaps) if gaps > 0 else None,
        "first_token": ((first - doubt) / firsts, first / firsts) if firsts else None,
    }


def _mean(before: Scrape, after: Scrape, metric: str) -> float | None:
    count = counters.gained(before, after, f"{metric}_count")
    return counters.gained(before, after, f"{metric}_sum") / count if count > 0 else None


def _compared(played: Played, name: str, ours: _Range, theirs: float, bounds: Bounds) -> Check:
    least, largest = ours
    nearest = min(max(theirs, least), largest)
    doubtful = largest > least
    client = f"{least * 1000:.2f} to {largest * 1000:.2f}" if doubtful else f"{least * 1000:.2f}"
    figures = f"client {client} ms, server {theirs * 1000:.2f} ms"
    about = f"the server's {_WORDS[name]} is the client's"
    allows = bounds.agreement[name].allows
    if allows(least, theirs) and allows(largest, theirs):
        return Check(about, State.HOLDS, figures, played.wave.name)
    if allows(nearest, theirs):
        detail = f"{figures}; the client read first tokens late, together with the next ones"
        return Check(about, State.NOT_SHOWN, detail, played.wave.name, required=False)
    if played.lag > bounds.starved and _explains(played, name, abs(nearest - theirs)):
        detail = figures + _late(played.lag)
        return Check(about, State.NOT_SHOWN, detail, played.wave.name, required=False)
    return Check(about, State.FAILS, figures, played.wave.name)


def _explains(played: Played, name: str, apart: float) -> bool:
    """Whether a late client may be the reason: for all where the kernel tells nothing, else for
    what it can't tell, two turns of its own between its clock and the wire when a request is sent.
    """
    return not played.totals.timed or (name == "first_token" and apart <= 2 * played.lag)
