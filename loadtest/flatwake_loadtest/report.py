"""The report of a run as JSON; docs/load.md describes each field.

Everything that the page shows is in it, so a page can be drawn again and two runs compared.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime

import numpy as np

from . import figures as wave_figures
from . import machine, memory, promises
from .answer import Json
from .bounds import Bounds
from .checks import Check
from .figures import Figures
from .plan import Target
from .probe import Probed
from .promises import Judged
from .session import Session
from .trend import Slope
from .verdict import Flatness, worst

SCHEMA = "flatwake.dev/load/v1"
_POINTS = 600


@dataclass(frozen=True)
class Outcome:
    """A run's report and whether every promise held."""

    report: Json
    checks: list[Check]

    @property
    def holds(self) -> bool:
        return all(each.passes for each in self.checks)


def build(session: Session, probed: Sequence[Probed], bounds: Bounds, command: str) -> Outcome:
    record = session.record
    figures = [wave_figures.of(played) for played in record.played]
    judged = promises.verdicts(record, session.samples, bounds)
    checks = promises.checks(record, session.samples, figures, judged, bounds)
    gated = [each.verdict for each in judged if each.gate == "flat"]
    start = min((played.begin for played in record.played), default=0.0)
    report: Json = {
        "schema": SCHEMA,
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": machine.commit(),
        "machine": machine.machine(),
        "versions": machine.versions(),
        "command": command,
        "seed": record.plan.seed,
        "seconds": round(session.seconds, 1),
        "load_average": [round(each, 2) for each in session.load_average],
        "targets": [_target(each) for each in probed],
        "holds": all(each.passes for each in checks),
        "flatness": worst(gated).value if gated else Flatness.NOT_SHOWN.value,
        "growing": list(promises.culprits(judged)),
        "checks": [each.as_json() for each in checks],
        "waves": [
            _wave(each, played.begin - start)
            for each, played in zip(figures, record.played, strict=True)
        ],
        "timeline": _timeline(session, start),
        "memory": {
            "verdicts": [_verdict(each) for each in judged],
            "windows": _windows(session, start),
            "series": _series(session, start),
            "sampling_errors": session.sampling_errors,
        },
        "peers": peers(figures, [each.target for each in probed]),
    }
    return Outcome(report, checks)


def _target(probed: Probed) -> Json:
    target = probed.target
    return {
        "name": target.name,
        "url": target.url,
        "model": target.model,
        "context": target.context,
        "slots": target.slots,
        "backend": probed.status.get("backend"),
        "device": probed.status.get("device"),
        "version": probed.status.get("version"),
        "ignore_eos": target.ignore_eos,
        "logprobs": target.logprobs,
    }


def _wave(figures: Figures, begin: float) -> Json:
    out = figures.as_json()
    out["begin"] = round(begin, 3)
    for name, distribution in (("first", figures.first), ("gap", figures.gap)):
        values, shares = distribution.curve()
        out[f"{name}_curve"] = {
            "ms": [round(value * 1000, 3) for value in _thin(values)],
            "share": [round(share, 5) for share in _thin(shares)],
        }
    return out


def _thin(values: Sequence[float]) -> list[float]:
    """At most so many points, the last always among them."""
    if len(values) <= _POINTS:
        return list(values)
    chosen = np.unique(np.linspace(0, len(values) - 1, _POINTS).round().astype(int))
    return [values[index] for index in chosen]


def _timeline(session: Session, start: float) -> Json:
    """Tokens a second of everyone together over the run."""
    tokens: dict[int, float] = {}
    for played in session.record.played:
        for second, count in played.totals.arrived.items():
            tokens[second] = tokens.get(second, 0.0) + count
    if not tokens:
        return {"seconds": [], "tokens_per_second": []}
    # Whole seconds a bin: a fraction would hold now one second's tokens, now two.
    width = max(1, -(-(max(tokens) - int(start)) // _POINTS))
    edges = np.arange(int(start), max(tokens) + 1 + width, width)
    counts, _ = np.histogram(list(tokens), edges, weights=list(tokens.values()))
    return {
        "seconds": [round(float(edge - start), 2) for edge in edges[:-1]],
        "tokens_per_second": [round(float(count / width), 2) for count in counts],
    }


def _windows(session: Session, start: float) -> list[Json]:
    return [
        {"wave": played.wave.name, "begin": mark.at - start, "end": end - start}
        for played in session.record.played
        for mark, end in played.parts("judged")
    ]


def _series(session: Session, start: float) -> list[Json]:
    found = memory.series(session.samples, start, float("inf"))
    return [
        {
            "process": series.process,
            "kind": series.kind,
            "unit": series.unit,
            "seconds": [round(value, 2) for value in _thin(series.seconds.tolist())],
            "requests": [round(value) for value in _thin(series.requests.tolist())],
            "values": [round(value, 1) for value in _thin(series.values.tolist())],
        }
        for series in found
    ]


def _verdict(judged: Judged) -> Json:
    verdict = judged.verdict
    return {
        "wave": judged.wave,
        "process": verdict.process,
        "kind": verdict.kind,
        "unit": verdict.unit,
        "flatness": verdict.flatness.value,
        "gate": judged.gate,
        "reason": verdict.reason,
        "bound": asdict(verdict.bound),
        "per_1000_requests": _slope(verdict.per_1000_requests),
        "per_hour": _slope(verdict.per_hour),
        "steps": [asdict(step) for step in verdict.steps],
        "sawtooth": asdict(verdict.sawtooth) if verdict.sawtooth else None,
        "samples": verdict.samples,
        "requests": verdict.requests,
        "seconds": verdict.seconds,
    }


def _slope(slope: Slope | None) -> Json | None:
    return None if slope is None else {"value": slope.value, "interval": [slope.low, slope.high]}


def peers(figures: list[Figures], targets: list[Target]) -> list[Json]:
    """Ours against each peer by users: the ratio of the mean aggregate speeds, turns apart."""
    out: list[Json] = []
    for peer in [target.name for target in targets if target.name != "ours"]:
        users = sorted({each.users for each in figures if each.target == peer})
        for count in users:
            ours, theirs = _speeds(figures, "ours", count), _speeds(figures, peer, count)
            if ours and theirs:
                out.append(
                    {
                        "peer": peer,
                        "users": count,
                        "ours_tokens_per_second": ours,
                        "peer_tokens_per_second": theirs,
                        "ratio": float(np.mean(ours) / np.mean(theirs)),
                    }
                )
    return out


def _speeds(figures: list[Figures], target: str, users: int) -> list[float]:
    return [
        each.aggregate
        for each in figures
        if each.kind == "steady" and each.target == target and each.users == users
        if each.aggregate is not None
    ]
