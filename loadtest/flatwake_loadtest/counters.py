"""Do the client, the API process and the engine count the same? Nothing lost, nothing kept."""

from __future__ import annotations

from collections import Counter

from .bounds import Bounds
from .checks import Check, State, check
from .metrics import HELD, Scrape
from .plan import STRIKES
from .record import Played

_OUTCOMES = ("stop", "length", "rejected", "timeout", "error")


def checks(played: Played, bounds: Bounds) -> list[Check]:
    """The counters' checks of one wave whose server exports them."""
    begin, end = played.rests.get("begin"), played.rests.get("end")
    if begin is None or end is None or not end.scrape:
        return []
    before, after = begin.scrape, end.scrape
    if played.wave.kind in STRIKES:
        # The server that saw the first half of the wave took its counters with it.
        return [_given_back(played, after, end.seconds, bounds.rest)]
    return [
        _requests(played, before, after),
        _tokens(played, before, after),
        _given_back(played, after, end.seconds, bounds.rest),
    ]


def gained(before: Scrape, after: Scrape, name: str) -> float:
    return (after.total(name) or 0.0) - (before.total(name) or 0.0)


def _requests(played: Played, before: Scrape, after: Scrape) -> Check:
    ours = played.totals.answered
    old, new = before.by("requests_total", "outcome"), after.by("requests_total", "outcome")
    theirs = {name: new.get(name, 0.0) - old.get(name, 0.0) for name in {*old, *new}}
    wrong: list[str] = []
    if not ours["cancelled"]:
        wrong += [
            f"{name}: client {ours[name]}, server {theirs.get(name, 0.0):.0f}"
            for name in (*_OUTCOMES, "cancelled")
            if ours[name] != theirs.get(name, 0.0)
        ]
    else:
        # An answer may end before its cancellation arrives, and a request that is withdrawn
        # before it was read is none. A user who is stopped while sending counts it nowhere.
        total, seen = sum(theirs.values()), sum(ours.values())
        least, most = seen - played.totals.unseen, seen + played.wave.users
        if not least <= total <= most:
            wrong.append(f"client {least} to {most} requests, server {total:.0f}")
    right = f"{sum(ours.values())} requests: {_words(ours)}"
    return check("requests are counted alike", played.wave.name, wrong, right)


def _tokens(played: Played, before: Scrape, after: Scrape) -> Check:
    generated = gained(before, after, "generated_tokens_total")
    reported = gained(before, after, "reported_tokens_total")
    discarded = gained(before, after, "discarded_tokens_total")
    wrong = []
    if generated != reported + discarded:
        wrong.append(f"generated {generated:.0f} ≠ reported {reported:.0f} + {discarded:.0f}")
    totals = played.totals
    if totals.whole:
        usage, asked = totals.usage_completion, totals.usage_prompt
        if usage != reported:
            wrong.append(f"usage says {usage} tokens, the engine reported {reported:.0f}")
        prompt = gained(before, after, "prompt_tokens_total")
        if asked != prompt:
            wrong.append(f"usage says {asked} prompt tokens, the engine took {prompt:.0f}")
    elif totals.streamed > reported:
        wrong.append(f"{totals.streamed} tokens were streamed, the engine reported {reported:.0f}")
    for answer in played.answers:
        # An event may hold several tokens, or a token no text yet; logprobs count each one.
        exact = answer.exact and answer.complete
        if exact and answer.tokens != answer.usage_completion:
            wrong.append(f"{answer.tokens} tokens streamed, usage says {answer.usage_completion}")
    right = f"{generated:.0f} generated = {reported:.0f} reported + {discarded:.0f} discarded"
    return check("tokens are counted alike", played.wave.name, wrong, right)


def _given_back(played: Played, after: Scrape, seconds: float, bound: float) -> Check:
    held = {name: after.get(name, **labels) for name, labels in HELD}
    wrong = [f"{name} still {value:.0f}" for name, value in held.items() if value]
    if not wrong and seconds > bound:
        wrong.append(f"it took {seconds:.2f} s, at most {bound:g} are allowed")
    if all(value is None for value in held.values()):
        about = "everything is given back"
        return Check(about, State.NOT_SHOWN, "the server exports no such gauge", played.wave.name)
    right = f"zero used {seconds * 1000:.0f} ms after the last answer"
    return check("everything is given back", played.wave.name, wrong, right)


def _words(counted: Counter[str]) -> str:
    return ", ".join(f"{times} {name}" for name, times in counted.most_common())
