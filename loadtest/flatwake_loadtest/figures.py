"""A wave's figures from its answers: speed, first tokens, gaps, and what its kind asks about."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import numpy as np

from .answer import Answer, Json
from .distribution import Distribution
from .plan import Kind
from .record import Played
from .series import Floats

_WINDOW = 50  # tokens
_PARTS = 10


@dataclass
class Figures:
    """What one wave measured. Times in seconds, speeds in tokens a second.

    `aggregate` is what all users got together in the steady parts, `per_user` the mean speed of
    a single stream after its first token; `more` is what only this kind of wave has.
    """

    name: str
    kind: Kind
    target: str
    users: int
    seconds: float
    outcomes: Counter[str]
    tokens: int
    prompt_tokens: int
    aggregate: float | None
    per_user: float | None
    first: Distribution
    gap: Distribution
    request: Distribution
    lag: float
    more: Json = field(default_factory=dict)

    def as_json(self) -> Json:
        return {
            "name": self.name,
            "kind": self.kind,
            "target": self.target,
            "users": self.users,
            "seconds": round(self.seconds, 3),
            "outcomes": dict(self.outcomes),
            "tokens": self.tokens,
            "prompt_tokens": self.prompt_tokens,
            "tokens_per_second": self.aggregate,
            "tokens_per_second_per_user": self.per_user,
            "time_to_first_token": self.first.as_json(),
            "inter_token": self.gap.as_json(),
            "request": self.request.as_json(),
            "client_lag_ms": round(1000 * self.lag, 3),
            **self.more,
        }


def of(played: Played) -> Figures:
    """The figures of one wave; where it has steady parts, only they count for speed and latency."""
    wave, totals = played.wave, played.totals
    first, gap, request = totals.first, totals.gap, totals.request
    aggregate = totals.produced / (played.end - played.begin) if totals.produced else None
    windows = [(mark.at, end) for mark, end in played.parts("steady")]
    if windows:
        first, gap, request = _inside(played.answers, windows)
        aggregate = _aggregate(played.answers, windows)
    return Figures(
        name=wave.name,
        kind=wave.kind,
        target=wave.target,
        users=wave.users,
        seconds=played.end - played.begin,
        outcomes=totals.outcomes,
        tokens=totals.produced,
        prompt_tokens=totals.usage_prompt,
        aggregate=aggregate,
        per_user=totals.gaps / totals.spans if totals.spans > 0 else None,
        first=first,
        gap=gap,
        request=request,
        lag=played.lag,
        more=_more(played),
    )


def _more(played: Played) -> Json:
    """What only this kind of wave has, and the way of the tokens where the server stamps them."""
    kind, delay = played.wave.kind, played.totals.delay
    more = _MORE[kind](played) if kind in _MORE else {}
    return more | ({"token_delay": delay.as_json()} if delay.count else {})


Windows = list[tuple[float, float]]


def _inside(
    answers: list[Answer], windows: Windows
) -> tuple[Distribution, Distribution, Distribution]:
    """First tokens, gaps and whole requests that end in these windows."""

    def counts(moment: float) -> bool:
        return any(begin <= moment <= end for begin, end in windows)

    first, gap, request = Distribution(), Distribution(), Distribution()
    for answer in answers:
        if not answer.complete:
            continue
        if answer.first is not None and counts(answer.sent + answer.first):
            first.add(answer.first)
        for stamp, between in zip(answer.stamps[1:], answer.gaps, strict=True):
            if counts(answer.sent + stamp):
                gap.add(between)
        if counts(answer.sent + answer.seconds):
            request.add(answer.seconds)
    return first, gap, request


def arrivals(answers: Iterable[Answer]) -> tuple[Floats, Floats]:
    """(moments, tokens) of all events in order; a stream's tokens are spread over its events."""
    moments: list[float] = []
    tokens: list[float] = []
    for answer in answers:
        share = answer.produced / len(answer.stamps) if answer.stamps else 0.0
        moments += [answer.sent + stamp for stamp in answer.stamps]
        tokens += [max(share, 1.0)] * len(answer.stamps)
    order = np.argsort(moments)
    return np.array(moments)[order], np.array(tokens)[order]


def rate(moments: Floats, tokens: Floats, begin: float, end: float) -> tuple[float, float]:
    """(tokens a second from begin to end, standard error from the scatter of its tenths)."""
    edges = np.linspace(begin, end, _PARTS + 1)
    counts, _ = np.histogram(moments, edges, weights=tokens)
    rates = counts / (edges[1] - edges[0])
    return float(rates.mean()), float(rates.std(ddof=1) / np.sqrt(_PARTS))


def _aggregate(answers: list[Answer], windows: Windows) -> float | None:
    moments, tokens = arrivals(answers)
    if not len(moments):
        return None
    inside = sum(
        float(tokens[(moments >= begin) & (moments < end)].sum()) for begin, end in windows
    )
    return inside / sum(end - begin for begin, end in windows)


def _rising(played: Played) -> Json:
    """Aggregate speed by number of users, in the order in which they came."""
    moments, tokens = arrivals(played.answers)
    steps = []
    for mark, end in played.parts("steady"):
        speed, error = rate(moments, tokens, mark.at, end)
        steps.append({"users": mark.users, "tokens_per_second": speed, "standard_error": error})
    return {"steps": steps}


def _join(played: Played) -> Json:
    """The joiner's own first token and gap; the others' largest gap while it joined."""
    joiner = played.tagged("joiner")
    running = played.tagged("running")
    if not joiner or not joiner[0].stamps or not running:
        return {}
    new = joiner[0]
    begin, end = new.sent, new.sent + new.stamps[-1]
    during: list[float] = []
    before: list[float] = []
    for answer in running:
        for start, gap in zip(answer.stamps, answer.gaps, strict=False):
            ends = answer.sent + start + gap
            (during if begin <= ends <= end + gap else before).append(gap)
    return {
        "join_prompt_tokens": new.usage_prompt,
        "join_ttft_ms": 1000 * new.stamps[0],
        "joiner_gap_ms": 1000 * float(np.median(new.gaps)) if new.gaps else None,
        "others_largest_gap_ms": 1000 * max(during, default=0.0),
        "others_median_gap_ms": 1000 * float(np.median(before)) if before else None,
    }


def _depth(played: Played) -> Json:
    """Decode speed in windows of 50 tokens of one stream, by the depth at which each begins."""
    windows = []
    for answer in played.answers:
        for begin in range(0, len(answer.stamps) - _WINDOW, _WINDOW):
            took = answer.stamps[begin + _WINDOW] - answer.stamps[begin]
            depth = (answer.usage_prompt or 0) + begin
            windows.append({"depth": depth, "tokens_per_second": _WINDOW / took})
    return {"windows": windows}


def _burst(played: Played) -> Json:
    refused = [answer for answer in played.answers if answer.outcome == "rejected"]
    waits = sorted({answer.retry_after or "absent" for answer in refused})
    return {"refused": len(refused), "retry_after": waits}


def _struck(played: Played) -> Json:
    """Seconds from the blow until the server no longer said that it was ready, and until it did."""
    return dict(played.told)


_MORE: dict[Kind, Callable[[Played], Json]] = {
    "rising": _rising,
    "join": _join,
    "depth": _depth,
    "burst": _burst,
    "kill": _struck,
    "hang": _struck,
}
