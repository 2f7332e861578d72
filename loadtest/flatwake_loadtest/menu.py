"""Which waves a run has: the full set, the short one, and what the user asks for instead."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import cast, get_args

from .errors import LoadError
from .plan import STRIKES, Kind, Target, Wave
from .prompts import PROFILES

NAMES: tuple[Kind, ...] = get_args(Kind)
KINDS: tuple[Kind, ...] = tuple(kind for kind in NAMES if kind not in STRIKES)
_QUEUE = 64  # the manifest's default for limits.queue, which no endpoint tells


@dataclass(frozen=True)
class Order:
    """What was asked for; None is the chosen set's own."""

    short: bool = False
    users: tuple[int, ...] = (1, 4, 8)
    kinds: tuple[Kind, ...] = KINDS
    profile: str | None = None
    seconds: float | None = None
    requests: int | None = None
    minutes: float | None = None
    runs: int | None = None
    burst: int | None = None

    def __post_init__(self) -> None:
        if self.profile is not None and self.profile not in PROFILES:
            raise LoadError(f"no profile {self.profile}; there are {', '.join(PROFILES)}")
        if not self.users or min(self.users) < 1:
            raise LoadError("users are numbers from 1 up, as in --users 1,4,8")
        unknown = set(self.kinds) - set(NAMES)
        if unknown:
            raise LoadError(f"no wave {', '.join(sorted(unknown))}; there are {', '.join(NAMES)}")

    @property
    def strikes(self) -> bool:
        """Whether the server will be harmed, and so has to be started again."""
        return not set(STRIKES).isdisjoint(self.kinds)

    def waves(self, target: Target, peer: str | None = None) -> tuple[Wave, ...]:
        """The waves in their order; with a peer the steady ones are played in turns."""
        chosen = self._short(target) if self.short else self._full(target)
        chosen = [wave for wave in chosen if wave.kind in self.kinds]
        return tuple(against(chosen, peer) if peer else chosen)

    def _full(self, target: Target) -> list[Wave]:
        seconds, profile = self.seconds or 30.0, self.profile or "chat"
        return [
            *steady(self.users, seconds, profile),
            Wave("correctness", "correctness", 8, requests=16, answer=48),
            Wave("join", "join, 32 tokens", 3, tokens=32, answer=400),
            Wave("join", "join, 2,048 tokens", 3, tokens=2048, answer=400),
            Wave("depth", "depth, 350 tokens", 1, tokens=32),
            Wave("depth", "depth, long context", 1, tokens=1_000_000),
            climb("rising 1 to 8", tuple(range(1, 9)), seconds / 2),
            climb("staircase", (1, 4, 8, 4, 1), seconds / 3),
            *self._crowded(seconds, profile),
            Wave("burst", "burst beyond the queue", self._crowd(target), answer=4),
            Wave("disconnect", "disconnects", 8, seconds=seconds, profile=profile),
            Wave("faults", "faults among users", 4, requests=24, answer=32),
            *strikes(answer=64),
            *endurance(self.requests or 400, self._minutes(10.0), self.runs or 2),
        ]

    def _crowded(self, seconds: float, profile: str) -> list[Wave]:
        """Far more users than slots, for the record: a slow server may let some wait too long."""
        crowd = () if 32 in self.users else (32,)
        return [replace(wave, reported=True) for wave in steady(crowd, seconds, profile)]

    def _short(self, target: Target) -> list[Wave]:
        """Small enough for `make test`: the promises are checked, speed is only glanced at."""
        seconds, profile = self.seconds or 3.0, self.profile or "endurance"
        return [
            *steady(self.users, seconds, profile),
            Wave("correctness", "correctness", 4, requests=8, answer=24),
            Wave("join", "join, 32 tokens", 3, tokens=32, answer=100),
            climb("rising 1 to 8", (1, 4, 8), seconds, "brief"),
            Wave("burst", "burst beyond the queue", self._crowd(target), answer=2),
            Wave("disconnect", "disconnects", 4, seconds=seconds, profile=profile),
            Wave("faults", "faults among users", 4, requests=12, answer=16),
            *strikes(answer=16),
            *endurance(self.requests or 48, self._minutes(0.2), self.runs or 1),
        ]

    def _crowd(self, target: Target) -> int:
        queue = _QUEUE if target.queue is None else target.queue
        return self.burst or (target.slots or 8) + queue + 16

    def _minutes(self, usual: float) -> float:
        return usual if self.minutes is None else self.minutes


def steady(users: tuple[int, ...], seconds: float, profile: str) -> list[Wave]:
    """The waves everyone asks for: so many users, warm-up, steady state."""
    warmup = max(seconds / 5, 1.0)
    names = {count: "1 user" if count == 1 else f"{count} users" for count in users}
    return [
        Wave("steady", names[count], count, profile=profile, seconds=seconds, warmup=warmup)
        for count in users
    ]


def climb(name: str, counts: tuple[int, ...], seconds: float, profile: str = "stream") -> Wave:
    """Each of these numbers of users in turn, for so many seconds each."""
    return Wave("rising", name, max(counts), counts=counts, seconds=seconds, profile=profile)


def strikes(answer: int) -> list[Wave]:
    """The engine is killed, or stopped without a word, under four streaming users."""
    return [
        Wave("kill", "engine killed", 4, answer=answer),
        Wave("hang", "engine hung", 4, answer=answer),
    ]


def kinds(text: str) -> tuple[Kind, ...]:
    """What --waves says: names with commas between; `all` is every one that harms nothing."""
    out: list[Kind] = []
    for name in text.split(","):
        out += KINDS if name == "all" else cast("tuple[Kind, ...]", (name,))
    return tuple(out)


def endurance(requests: int, minutes: float, runs: int, users: int = 4) -> list[Wave]:
    """`requests` in rounds of `users` over at least `minutes`; the first quarter warms up."""
    one = Wave(
        kind="endurance",
        name="endurance",
        users=users,
        profile="endurance",
        warmup=0.25,
        requests=requests,
        pace=minutes * 60 / max(requests / users, 1),
    )
    return [one] if runs == 1 else [replace(one, name=f"endurance {i + 1}") for i in range(runs)]


def against(waves: list[Wave], peer: str) -> list[Wave]:
    """Each steady wave asked of both in turn, twice, so that a machine's drift hits both alike."""
    out: list[Wave] = []
    for wave in waves:
        if wave.kind != "steady":
            out.append(wave)
            continue
        for turn, target in enumerate(("ours", peer, peer, "ours")):
            name = f"{wave.name}, {target}, turn {turn // 2 + 1}"
            out.append(replace(wave, name=name, target=target))
    return out
