"""The bounds that a run is held to, read from bounds.yaml beside this file."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import resources
from typing import Literal

import yaml

from .verdict import Bound

# Whether "not shown" fails a run too, only "not flat" does, or nothing does.
Gate = Literal["flat", "not_growing", "report"]


@dataclass(frozen=True)
class Agreement:
    """How far two measurements of one thing may be apart: a share of it, or so much in its unit."""

    share: float
    absolute: float

    def allows(self, ours: float, theirs: float) -> bool:
        return abs(ours - theirs) <= max(self.share * ours, self.absolute)


@dataclass(frozen=True)
class Bounds:
    memory: dict[str, list[tuple[int, float, Gate]]]
    agreement: dict[str, Agreement]
    rest: float
    rising: float
    starved: float

    def of(self, kind: str, requests: int) -> tuple[Bound, Gate] | None:
        """The bound for a run of so many requests; None for what isn't judged."""
        found = None
        for least, limit, gate in self.memory.get(kind, []):
            if requests >= least:
                found = Bound(limit), gate
        return found


def load() -> Bounds:
    data = yaml.safe_load(resources.files(__package__).joinpath("bounds.yaml").read_text())
    memory = {
        kind: [(each["from_requests"], float(each["limit"]), each["gate"]) for each in entries]
        for kind, entries in data["memory"].items()
    }
    agreement = {name: Agreement(**each) for name, each in data["agreement"].items()}
    single = {name: float(data[name]) for name in ("rest", "rising", "starved")}
    return Bounds(memory, agreement, **single)
