"""What a run does, as data: it is written by the command and read by the driving process."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Literal

from .answer import Json
from .prompts import PROFILES, Profile, Prompt, Words

Kind = Literal[
    "steady",
    "correctness",
    "join",
    "depth",
    "rising",
    "burst",
    "disconnect",
    "faults",
    "endurance",
    "kill",
    "hang",
]
STRIKES: tuple[Kind, ...] = ("kill", "hang")
"""Waves that harm the server: they are played only when they are named."""


@dataclass(frozen=True)
class Target:
    """One server and what was learnt about it before the run."""

    name: str
    url: str
    model: str | None = None
    api_key: str | None = None
    context: int | None = None
    slots: int | None = None
    queue: int | None = None
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
    two rounds, `counts` the numbers of users that a rising wave goes through; `tokens` and
    `answer` are the lengths of prompts and answers where the wave doesn't take a profile's. A
    wave that is only `reported` fails no run by refusals or waits.
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
    answer: int = 0
    counts: tuple[int, ...] = ()
    reported: bool = False


@dataclass(frozen=True)
class Plan:
    """The whole run."""

    targets: tuple[Target, ...]
    waves: tuple[Wave, ...]
    seed: int = 1
    recorded: tuple[Prompt, ...] = ()
    workers: int = 0  # that play the users; none: the driving process does
    bind: str = ""  # where they join

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
        return cls(targets, waves, data["seed"], recorded, data["workers"], data["bind"])
