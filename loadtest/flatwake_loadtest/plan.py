"""What a run does, as data: it is written by the command and read by the driving process."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from typing import Literal

from .prompts import PROFILES, Profile, Prompt, Words
from .stream import Json

Kind = Literal[
    "steady",
    "rising",
    "join",
    "depth",
    "burst",
    "disconnect",
    "correctness",
    "endurance",
]


@dataclass(frozen=True)
class Target:
    """One server and what was learnt about it before the run."""

    name: str
    url: str
    model: str | None = None
    api_key: str | None = None
    context: int | None = None
    slots: int | None = None
    words: Words = field(default_factory=Words)
    ignore_eos: bool = False
    logprobs: bool = False
    metrics: bool = False

    def body(self, prompt: Prompt, full_length: bool = True, logprobs: bool = False) -> Json:
        """The request; with `full_length` the answer is as long as asked, where that is known."""
        body = prompt.body(self.model)
        if full_length and self.ignore_eos:
            body["ignore_eos"] = True
        if logprobs and self.logprobs:
            body["logprobs"] = True
        return body


@dataclass(frozen=True)
class Wave:
    """One part of a run.

    `users` is how many there are at most, `seconds` how long each part lasts, `warmup` how many
    seconds (for endurance: which share of the requests) go before what is measured, `requests`
    how many are asked in all where that is what ends the wave, `pace` the least seconds between
    two rounds, `counts` the numbers of users that a rising wave goes through.
    """

    kind: Kind
    name: str
    users: int
    target: str = "ours"
    profile: str = "chat"
    seconds: float = 0.0
    warmup: float = 0.0
    requests: int = 0
    pace: float = 0.0
    tokens: int = 0
    counts: tuple[int, ...] = ()


@dataclass(frozen=True)
class Plan:
    """The whole run."""

    targets: tuple[Target, ...]
    waves: tuple[Wave, ...]
    seed: int = 1
    recorded: tuple[Prompt, ...] = ()

    def target(self, name: str) -> Target:
        return next(target for target in self.targets if target.name == name)

    def profile(self, wave: Wave) -> Profile:
        return PROFILES[wave.profile].within(self.target(wave.target).context)

    def as_json(self) -> Json:
        return asdict(self)

    @classmethod
    def from_json(cls, data: Json) -> Plan:
        targets = tuple(
            Target(**{**each, "words": Words(**each["words"])}) for each in data["targets"]
        )
        waves = tuple(Wave(**{**each, "counts": tuple(each["counts"])}) for each in data["waves"])
        recorded = tuple(
            Prompt(
                **{
                    **each,
                    "messages": tuple((role, text) for role, text in each["messages"]),
                    "extra": tuple((name, value) for name, value in each["extra"]),
                }
            )
            for each in data["recorded"]
        )
        return cls(targets, waves, data["seed"], recorded)


def steady(users: tuple[int, ...], seconds: float, profile: str) -> list[Wave]:
    """The waves everyone asks for: so many users, warm-up, steady state."""
    warmup = max(seconds / 5, 1.0)
    names = {count: "1 user" if count == 1 else f"{count} users" for count in users}
    return [
        Wave("steady", names[count], count, profile=profile, seconds=seconds, warmup=warmup)
        for count in users
    ]


def full(
    users: tuple[int, ...], profile: str, requests: int, minutes: float, burst: int
) -> list[Wave]:
    """The whole set, with the endurance run made twice."""
    return [
        *steady(users, 30.0, profile),
        Wave("correctness", "correctness", 8, requests=16, tokens=48),
        Wave("join", "join, 32 tokens", 3, tokens=32),
        Wave("join", "join, 2,048 tokens", 3, tokens=2048),
        Wave("depth", "depth, 350 tokens", 1, tokens=32),
        Wave("depth", "depth, long context", 1, tokens=1_000_000),
        Wave(
            "rising", "rising 1 to 8", 8, counts=tuple(range(1, 9)), seconds=15.0, profile=profile
        ),
        Wave("rising", "staircase", 8, counts=(1, 4, 8, 4, 1), seconds=10.0, profile=profile),
        *steady((32,), 30.0, profile),
        Wave("burst", "burst beyond the queue", burst, tokens=4),
        Wave("disconnect", "disconnects", 8, seconds=20.0, profile=profile),
        *endurance(requests, minutes, runs=2),
    ]


def short(users: tuple[int, ...], profile: str, burst: int, seconds: float = 5.0) -> list[Wave]:
    """Everything once and briefly: a check of the promises, not a measurement."""
    return [
        *steady(users, seconds, profile),
        Wave("correctness", "correctness", 4, requests=8, tokens=32),
        Wave("join", "join, 32 tokens", 3, tokens=32),
        climb("rising 1 to 8", (1, 4, 8), seconds, profile),
        Wave("burst", "burst beyond the queue", burst, tokens=2),
        Wave("disconnect", "disconnects", 4, seconds=seconds, profile=profile),
        *endurance(80, 20 / 60, runs=1),
    ]


def climb(name: str, counts: tuple[int, ...], seconds: float, profile: str) -> Wave:
    """Each of these numbers of users in turn, for so many seconds each."""
    return Wave("rising", name, max(counts), counts=counts, seconds=seconds, profile=profile)


def endurance(requests: int, minutes: float, runs: int, users: int = 4) -> list[Wave]:
    """`requests` in rounds of `users` over at least `minutes`; the first quarter warms up."""
    pace = minutes * 60 / max(requests / users, 1)
    one = Wave("endurance", "endurance", users, profile="endurance", warmup=0.25,
               requests=requests, pace=pace)  # fmt: skip
    return [
        replace(one, name=f"endurance {run + 1}" if runs > 1 else one.name) for run in range(runs)
    ]


def against(waves: list[Wave], peer: str) -> list[Wave]:
    """Each steady wave asked of both in turn, twice, so that a machine's drift hits both alike."""
    out: list[Wave] = []
    for wave in waves:
        if wave.kind != "steady":
            out.append(wave)
            continue
        turns = [(wave, "ours"), (wave, peer), (wave, peer), (wave, "ours")]
        for turn, (each, target) in enumerate(turns):
            label = f"{each.name}, {target}, turn {turn // 2 + 1}"
            out.append(replace(each, name=label, target=target))
    return out
