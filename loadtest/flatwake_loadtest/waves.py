"""The waves: each is a few lines about who asks what and when, played on a stage."""

from __future__ import annotations

import json
import random
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from queue import Queue

from .engine import Engine, await_return, watch_fall
from .plan import Kind, Wave
from .prompts import Prompt, endless, fixed
from .stage import Stage, nothing
from .user import Job
from .words import codeword

_SETTLED = 20  # tokens after which a stream counts as running
_DEPTH = 350
_STALL = 2.0  # seconds for which a reader doesn't read
_GONE = 300.0  # seconds that a struck server has to fall, and again to return


def play(stage: Stage, wave: Wave) -> None:
    with stage.play(wave):
        WAVES[wave.kind](stage, wave)


def asking(stage: Stage, wave: Wave, think: bool = False) -> Callable[[int], Job]:
    """An endless source: each user its own prompts, or its share of the recorded ones."""
    streams: dict[int, Iterator[Prompt]] = {}
    plan, recorded = stage.plan, stage.plan.recorded
    salt = plan.seed * 1_000_003 + plan.waves.index(wave)

    def mine(user: int) -> Iterator[Prompt]:
        if recorded:
            while True:
                yield from recorded[user % len(recorded) :]
                yield from recorded[: user % len(recorded)]
        yield from endless(plan.profile(wave), salt, user, stage.target.words)

    def source(user: int) -> Job:
        prompt = next(streams.setdefault(user, mine(user)))
        return Job(stage.target.body(prompt), think=prompt.think if think else 0.0)

    return source


def steady(stage: Stage, wave: Wave) -> None:
    """Warm-up, then `seconds` with all users asking without a pause."""
    stage.source = asking(stage, wave)
    stage.fill(wave.users)
    time.sleep(wave.warmup)
    stage.mark("steady", users=wave.users)
    time.sleep(wave.seconds)
    stage.mark("drain")


def rising(stage: Stage, wave: Wave) -> None:
    """Each number of users for `seconds`; those in excess leave when their answer has ended."""
    stage.source = asking(stage, wave)
    for count in wave.counts:
        stage.fill(count)
        stage.until(flowing(stage, count))
        stage.mark("steady", users=count)
        time.sleep(wave.seconds)
        stage.mark("settle")


def flowing(stage: Stage, users: int) -> Callable[[], bool]:
    """Whether so many users are there and each has got some tokens from now on."""
    before = stage.seen.copy()

    def condition() -> bool:
        fresh = stage.seen - before
        return stage.present == users and sum(fresh[user] >= 3 for user in fresh) >= users

    return condition


def join(stage: Stage, wave: Wave) -> None:
    """A user with a prompt of `tokens` joins `users` running streams."""
    words, seed = stage.target.words, stage.plan.seed
    room = (stage.target.context or 1 << 30) - 64
    asked: set[int] = set()

    def source(user: int) -> Job | None:
        if user in asked:
            return None
        asked.add(user)
        if user < wave.users:
            prompt = fixed(32, wave.answer, seed + user, words)
            return Job(stage.target.body(prompt), tag="running")
        prompt = fixed(min(wave.tokens, room), 32, seed + 100, words)
        return Job(stage.target.body(prompt), tag="joiner")

    stage.source = source
    stage.fill(wave.users)
    stage.until(lambda: all(stage.seen[user] >= _SETTLED for user in range(wave.users)))
    stage.mark("join")
    stage.fill(wave.users + 1)
    stage.until(lambda: stage.ended == wave.users + 1)


def depth(stage: Stage, wave: Wave) -> None:
    """One stream of 350 tokens behind a prompt of `tokens`, or of what the context holds."""
    room = (stage.target.context or 8192) - _DEPTH - 64
    once(stage, 1, lambda _: Job(stage.target.body(_depth(stage, min(wave.tokens, room)))))


def _depth(stage: Stage, tokens: int) -> Prompt:
    return fixed(max(tokens, 16), _DEPTH, stage.plan.seed, stage.target.words)


def burst(stage: Stage, wave: Wave) -> None:
    """All users at once, one short request each; a 429 is obeyed and the request made again."""

    def job(user: int) -> Job:
        prompt = fixed(24, wave.answer, stage.plan.seed * 1000 + user, stage.target.words)
        return Job(stage.target.body(prompt), obey_retry=True)

    once(stage, wave.users, job)


def disconnect(stage: Stage, wave: Wave) -> None:
    """Users who go away early, beside a witness whose greedy answers must stay what they were."""
    rng = random.Random(stage.plan.seed)
    ask = asking(stage, wave)
    witness = Job(stage.target.body(fixed(32, 48, stage.plan.seed, stage.target.words)))
    once(stage, 1, lambda _: replace(witness, tag="alone:witness"))
    end = time.monotonic() + wave.seconds
    first = stage.entered

    def source(user: int) -> Job | None:
        if time.monotonic() > end:
            return None
        if user == first:
            return replace(witness, tag="together:witness")
        return replace(ask(user), abort_after=rng.choice([0, 0, 1, 2, 5, 10, 20]), tag="leaving")

    stage.mark("storm")
    stage.source = source
    stage.fill(wave.users)
    stage.until(lambda: stage.present == 0)
    stage.mark("storm over")


def correctness(stage: Stage, wave: Wave) -> None:
    """Greedy prompts with a codeword each: alone, then all together, then with counted tokens."""
    prompts = [_codeword(stage, wave, index) for index in range(wave.requests)]

    def bodies(mode: str, logprobs: bool = False) -> Callable[[int], Job]:
        return lambda index: Job(
            stage.target.body(prompts[index], logprobs=logprobs), tag=f"{mode}:{index}"
        )

    shared(stage, 1, wave.requests, bodies("alone"))
    stage.mark("together")
    shared(stage, wave.users, wave.requests, bodies("together"))
    stage.mark("counted")
    shared(stage, min(wave.users, 4), min(wave.requests, 4), bodies("counted", logprobs=True))


def _codeword(stage: Stage, wave: Wave, index: int) -> Prompt:
    word = codeword(stage.plan.seed, index)
    line = f"The password is {word}. "
    ask = f"{line * 4}Say the password. The password is"
    filler = fixed(16 + 24 * (index % 4), 1, stage.plan.seed + index, stage.target.words)
    return Prompt((("user", f"{filler.messages[0][1]}. {ask}"),), wave.answer, 0.0, index)


def endurance(stage: Stage, wave: Wave) -> None:
    """Rounds of `users` requests that begin together, at the pace that fills the time."""
    ask = asking(stage, wave)
    tickets: Queue[bool] = Queue()
    rounds = -(-wave.requests // wave.users)
    warm = round(rounds * wave.warmup)

    def source(user: int) -> Job | None:
        return ask(user) if tickets.get() else None

    def ended(requests: int) -> Callable[[], bool]:
        return lambda: stage.ended >= requests

    stage.source = source
    stage.fill(wave.users)
    begin = time.monotonic()
    for number in range(rounds):
        if number == warm:
            stage.mark("judged")
        for _ in range(wave.users):
            tickets.put(True)
        stage.until(ended((number + 1) * wave.users))
        time.sleep(max(begin + (number + 1) * wave.pace - time.monotonic(), 0.0))
    stage.mark("judged end")
    for _ in range(wave.users):
        tickets.put(False)


def faults(stage: Stage, wave: Wave) -> None:
    """Malformed bodies, prompts beyond the context and a stalled reader among ordinary users."""
    target, words = stage.target, stage.target.words
    prompts = [fixed(32, wave.answer, stage.plan.seed + n, words) for n in range(wave.requests)]
    too_long = fixed(2 * (target.context or 100_000), 4, stage.plan.seed, words)
    whole = json.dumps(target.body(prompts[0])).encode()

    def alone(index: int) -> Job:
        return Job(target.body(prompts[4 * index]), tag=f"alone:{4 * index}")

    def mixed(index: int) -> Job:
        match index % 4:
            case 1:
                return Job(whole[: len(whole) // 2], tag="malformed")
            case 2:
                return Job(target.body(too_long), tag="oversized")
            case 3:
                return Job(target.body(prompts[index]), stall=_STALL, tag="stalled")
        return Job(target.body(prompts[index]), tag=f"together:{index}")

    shared(stage, 1, -(-wave.requests // 4), alone)
    stage.mark("faults")
    shared(stage, wave.users, wave.requests, mixed)


def kill(stage: Stage, wave: Wave) -> None:
    """The engine is killed under streaming users; somebody else starts the server again."""
    strike(stage, wave, signal.SIGKILL)


def hang(stage: Stage, wave: Wave) -> None:
    """The engine stands still under streaming users, as on a device that hangs."""
    strike(stage, wave, signal.SIGSTOP)


def strike(stage: Stage, wave: Wave, number: signal.Signals) -> None:
    """Greedy answers alone, streams that are cut by the signal, the same greedy answers after."""
    target, words, seed = stage.target, stage.target.words, stage.plan.seed
    prompts = [fixed(32, wave.answer, seed + index, words) for index in range(wave.users)]
    # Long enough that none ends before the blow.
    room = (target.context or 4096) - 128
    cut = [fixed(32, room, seed + 100 + index, words) for index in range(wave.users)]

    def greedy(mode: str) -> Callable[[int], Job]:
        return lambda index: Job(target.body(prompts[index]), tag=f"{mode}:{index}")

    shared(stage, 1, wave.users, greedy("alone"))
    left = iter(range(wave.users))

    def struck(_: int) -> Job | None:
        index = next(left, None)
        return None if index is None else Job(target.body(cut[index]), tag="struck")

    stage.source = struck
    before, ended = stage.seen.copy(), stage.ended
    stage.fill(wave.users)
    stage.until(lambda: sum(stage.seen[user] >= 3 for user in stage.seen - before) >= wave.users)
    engine = Engine.find(target.url, target.api_key)
    stage.mark("struck")
    engine.strike(number)
    fell = watch_fall(target.url, _GONE)
    stage.until(lambda: stage.ended >= ended + wave.users and stage.present == 0)
    stage.mark("away")
    away = await_return(target.url, engine, _GONE)
    stage.tell(fell_seconds=fell, away_seconds=away)
    stage.mark("back")
    if away is None:
        return
    stage.rest("begin")  # a new server counts from zero
    shared(stage, 1, wave.users, greedy("together"))


def once(stage: Stage, users: int, job: Callable[[int], Job]) -> None:
    """So many users with one request each, all at once."""
    shared(stage, users, users, job)


def shared(stage: Stage, users: int, requests: int, job: Callable[[int], Job]) -> None:
    """Users who take requests from one list until it is empty."""
    left = iter(range(requests))
    before = stage.ended

    def source(_: int) -> Job | None:
        index = next(left, None)
        return None if index is None else job(index)

    stage.source = source
    stage.fill(users)
    stage.until(lambda: stage.present == 0)
    stage.source = nothing
    assert stage.ended >= before + requests


WAVES: dict[Kind, Callable[[Stage, Wave], None]] = {
    "steady": steady,
    "rising": rising,
    "join": join,
    "depth": depth,
    "burst": burst,
    "disconnect": disconnect,
    "correctness": correctness,
    "faults": faults,
    "endurance": endurance,
    "kill": kill,
    "hang": hang,
}
