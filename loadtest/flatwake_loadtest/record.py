"""What a run has said so far: its events, sorted by wave."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from .answer import Answer, Json
from .metrics import Scrape
from .plan import Plan, Wave
from .totals import Totals


@dataclass(frozen=True)
class Mark:
    """The beginning of a part of a wave, CLOCK_MONOTONIC."""

    phase: str
    at: float
    users: int = 0


@dataclass(frozen=True)
class Rest:
    """The server's counters while nothing runs, and the seconds that it took to come to rest."""

    seconds: float
    scrape: Scrape


@dataclass
class Played:
    """One wave as it happened: everything in its totals, and the answers one by one.

    An endurance run keeps only the answers that weren't served: it may last for days.
    """

    wave: Wave
    begin: float = 0.0
    marks: list[Mark] = field(default_factory=list)
    answers: list[Answer] = field(default_factory=list)
    totals: Totals = field(default_factory=Totals)
    rests: dict[str, Rest] = field(default_factory=dict)
    told: dict[str, float | None] = field(default_factory=dict)
    lag: float = 0.0  # seconds that the client came late to its own turn, on average

    def add(self, answer: Answer) -> None:
        self.totals.add(answer)
        if not answer.tag:
            answer.text = ""  # only tagged answers are compared
        if self.wave.kind != "endurance" or not answer.complete:
            self.answers.append(answer)

    def parts(self, phase: str) -> Iterator[tuple[Mark, float]]:
        """(mark, end) of each part of this name."""
        for mark, following in zip(self.marks, self.marks[1:], strict=False):
            if mark.phase == phase:
                yield mark, following.at

    @property
    def end(self) -> float:
        return self.marks[-1].at if self.marks else self.begin

    def tagged(self, prefix: str) -> list[Answer]:
        return [answer for answer in self.answers if answer.tag.startswith(prefix)]


@dataclass
class Record:
    plan: Plan
    waves: dict[str, Played] = field(default_factory=dict)
    ended: int = 0
    finished: bool = False

    def __post_init__(self) -> None:
        names = [wave.name for wave in self.plan.waves]
        assert len(set(names)) == len(names), f"waves of one name: {names}"
        self.waves = {wave.name: Played(wave) for wave in self.plan.waves}

    def take(self, event: Json) -> None:
        """Adds one event of the driving process."""
        kind = event.pop("event")
        if kind == "done":
            self.finished = True
        elif kind == "answer":
            self.ended += 1
            self.waves[event["wave"]].add(Answer(**event))
        elif kind == "wave":
            self.waves[event["name"]].begin = event["at"]
        elif kind == "mark":
            played = self.waves[event.pop("wave")]
            played.marks.append(Mark(**event))
        elif kind == "told":
            self.waves[event["wave"]].told.update(event["figures"])
        elif kind == "lag":
            self.waves[event["wave"]].lag = event["mean"]
        elif kind == "rest":
            scrape = Scrape.parse(event["text"])
            self.waves[event["wave"]].rests[event["at"]] = Rest(event["seconds"], scrape)

    @property
    def played(self) -> list[Played]:
        return [played for played in self.waves.values() if played.marks]
