"""Prometheus' text format, as much of it as a load suite reads."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

_SAMPLE = re.compile(r"^(?P<name>[a-zA-Z_:][\w:]*)(?:\{(?P<labels>.*)\})?\s+(?P<value>\S+)")
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
PREFIX = "flatwake_"


@dataclass(frozen=True)
class Scrape:
    """One reading of /metrics: value by (name without the prefix, labels in order)."""

    samples: dict[str, dict[tuple[tuple[str, str], ...], float]]

    @classmethod
    def parse(cls, text: str) -> Scrape:
        samples: dict[str, dict[tuple[tuple[str, str], ...], float]] = {}
        for line in text.splitlines():
            match = _SAMPLE.match(line) if line.startswith(PREFIX) else None
            if match is None:
                continue
            labels = tuple(sorted(_LABEL.findall(match["labels"] or "")))
            name = match["name"].removeprefix(PREFIX)
            samples.setdefault(name, {})[labels] = float(match["value"])
        return cls(samples)

    def __bool__(self) -> bool:
        return bool(self.samples)

    def get(self, name: str, **labels: str) -> float | None:
        """The value with exactly these labels; None if it isn't exported."""
        return self.samples.get(name, {}).get(tuple(sorted(labels.items())))

    def total(self, name: str) -> float | None:
        """The sum over all labels; None if it isn't exported."""
        found = self.samples.get(name)
        return sum(found.values()) if found else None

    def by(self, name: str, label: str) -> dict[str, float]:
        """Values summed by one label."""
        sums: dict[str, float] = {}
        for labels, value in self.samples.get(name, {}).items():
            key = dict(labels).get(label, "")
            sums[key] = sums.get(key, 0.0) + value
        return sums

    def labelled(self, name: str) -> Iterator[tuple[dict[str, str], float]]:
        for labels, value in self.samples.get(name, {}).items():
            yield dict(labels), value


# Gauges that are zero when nothing runs.
HELD: tuple[tuple[str, dict[str, str]], ...] = (
    ("requests_in_flight", {}),
    ("kv_blocks", {"state": "used"}),
    ("state_slots", {"state": "used"}),
)
