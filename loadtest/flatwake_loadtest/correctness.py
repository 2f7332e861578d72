"""Is every answer whole, its own, and the same in company as alone?"""

from __future__ import annotations

from .answer import UNFIT, Answer
from .checks import Check, State, check
from .plan import STRIKES
from .record import Played
from .words import codeword

_FALL = 1.0  # seconds in which readiness must fall once the engine is dead


def checks(played: Played, seed: int) -> list[Check]:
    found = [_served(played)]
    if played.tagged("together"):
        found.append(_equal(played))
    if played.wave.kind == "correctness":
        found += [_own_words(played, seed), _exact(played)]
    if played.wave.kind == "burst":
        found.append(_burst(played))
    if played.wave.kind == "faults":
        found.append(_refusals(played))
    if played.wave.kind in STRIKES:
        found += _struck(played)
    return found


def _served(played: Played) -> Check:
    """Every request ends as it should; a burst may be refused first, a leaver leaves."""
    fine = {"stop", "length"}
    if played.wave.kind == "burst":
        fine.add("rejected")
    if played.wave.kind == "disconnect":
        fine.add("cancelled")
    wrong = [
        f"{answer.outcome} (status {answer.status}): {answer.error or 'no reason given'}"
        for answer in played.answers
        if answer.outcome not in fine and answer.tag not in (*UNFIT, "struck")
    ]
    right = f"{played.totals.requests} requests"
    required = not played.wave.reported
    return check("every request ends as it should", played.wave.name, wrong, right, required)


def _equal(played: Played) -> Check:
    """Greedy text under load against the same prompt's alone."""
    alone = {answer.tag.partition(":")[2]: answer for answer in played.tagged("alone")}
    together = played.tagged("together")
    wrong = []
    for answer in together:
        name = answer.tag.partition(":")[2]
        if answer.complete and answer.text != alone[name].text:
            wrong.append(_difference(name, alone[name], answer))
    right = f"{len(together)} greedy answers, {sum(a.produced for a in together)} tokens"
    about = "greedy answers are the same alone and under load"
    return check(about, played.wave.name, wrong, right)


def _difference(name: str, alone: Answer, answer: Answer) -> str:
    pairs = zip(alone.text, answer.text, strict=False)
    shortest = min(len(alone.text), len(answer.text))
    at = next((i for i, (a, b) in enumerate(pairs) if a != b), shortest)
    return f"prompt {name} differs from character {at}"


def _own_words(played: Played, seed: int) -> Check:
    """No stream may say another stream's codeword; how many say their own is told."""
    together = played.tagged("together")
    words = {str(index): codeword(seed, index) for index in range(played.wave.requests)}
    wrong, own = [], 0
    for answer in together:
        name = answer.tag.partition(":")[2]
        own += words[name] in answer.text
        crossed = [other for other in words if other != name and words[other] in answer.text]
        wrong += [f"the answer to {name} holds the codeword of {other}" for other in crossed]
    right = f"{own} of {len(together)} say their own codeword, none another's"
    return check("no answer crosses into another", played.wave.name, wrong, right)


def _exact(played: Played) -> Check:
    """With logprobs each token of the stream is seen: they must be as many as usage says."""
    about = "the stream holds the tokens that usage counts"
    counted = [answer for answer in played.tagged("counted") if answer.complete]
    if not any(answer.exact for answer in counted):
        detail = "the server gave no logprobs, so tokens in the stream can't be told apart"
        return Check(about, State.NOT_SHOWN, detail, played.wave.name, required=False)
    wrong = [
        f"{answer.tokens} streamed, usage says {answer.usage_completion}"
        for answer in counted
        if answer.tokens != answer.usage_completion
    ]
    right = f"{sum(answer.tokens for answer in counted)} tokens in {len(counted)} streams"
    return check(about, played.wave.name, wrong, right)


def _refusals(played: Played) -> Check:
    """A malformed body and a prompt beyond the context are the client's fault: 4xx and a reason."""
    unfit = [answer for answer in played.answers if answer.tag in UNFIT]
    wrong = [
        f"{answer.tag}: status {answer.status}, {answer.error or 'no reason given'}"
        for answer in unfit
        if not (400 <= answer.status < 500 and answer.error)
    ]
    right = f"{len(unfit)} refused"
    return check("what can't be served is refused with a reason", played.wave.name, wrong, right)


def _burst(played: Played) -> Check:
    """Beyond the queue: 429 with an integer Retry-After, and everyone is served in the end."""
    about = "a full queue says 429 and when to come back"
    refused = [answer for answer in played.answers if answer.outcome == "rejected"]
    if not refused:
        detail = f"{played.wave.users} users at once were all taken: ask with a larger --burst"
        return Check(about, State.NOT_SHOWN, detail, played.wave.name, required=False)
    wrong = [
        f"Retry-After is {answer.retry_after or 'absent'}"
        for answer in refused
        if not (answer.retry_after or "").isdigit()
    ]
    served = played.totals.served
    if served != played.wave.users:
        wrong.append(f"{served} of {played.wave.users} users were served in the end")
    right = f"{len(refused)} refusals, all {served} users served in the end"
    return check(about, played.wave.name, wrong, right)


def _struck(played: Played) -> list[Check]:
    """A dead engine ends every stream with an error event, readiness falls, the server returns."""
    wrong = [
        f"{answer.outcome}: {answer.error or 'the stream ended without a word'}"
        for answer in played.tagged("struck")
        if answer.outcome != "error"
    ]
    struck = len(played.tagged("struck"))
    fell, away = played.told.get("fell_seconds"), played.told.get("away_seconds")
    late = []
    if fell is None:
        late.append("the server went on saying that it is ready")
    elif played.wave.kind == "kill" and fell > _FALL:
        late.append(f"the server called itself ready for {fell:.1f} s more, at most 1 s is right")
    gone = [] if away is not None else ["nobody started it again, or it didn't become ready"]
    name = played.wave.name
    return [
        check("a dead engine's streams end with an error", name, wrong, f"{struck} streams"),
        check("a dead engine's server isn't ready", name, late, f"after {fell or 0:.2f} s"),
        check("the server returns", name, gone, f"ready {away or 0:.1f} s after its last stream"),
    ]
