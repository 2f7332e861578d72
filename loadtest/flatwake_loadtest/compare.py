"""Two reports side by side: what got faster or slower, what holds no longer."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from .answer import Json
from .errors import LoadError
from .report import SCHEMA

_NOTICED = 0.05


@dataclass(frozen=True)
class Row:
    """One figure in both; `change` is new ÷ old − 1, `worse` whether it is worse by over 5 %."""

    wave: str
    figure: str
    old: float
    new: float
    change: float
    worse: bool


# Figure: (where it stands, whether more is better).
_FIGURES: dict[str, tuple[tuple[str, ...], bool]] = {
    "tokens/s": (("tokens_per_second",), True),
    "first token p50, ms": (("time_to_first_token", "p50_ms"), False),
    "gap mean, ms": (("inter_token", "mean_ms"), False),
    "gap p99, ms": (("inter_token", "p99_ms"), False),
    "join first token, ms": (("join_ttft_ms",), False),
}


def load(path: Path) -> Json:
    """A report; raises LoadError if the file is none."""
    try:
        report = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise LoadError(f"{path} can't be read as a report: {error}") from error
    if not isinstance(report, dict) or report.get("schema") != SCHEMA:
        raise LoadError(f"{path} is no report of this version ({SCHEMA})")
    return report


def rows(old: Json, new: Json) -> list[Row]:
    """Each figure that both reports have, wave by wave."""
    before = {wave["name"]: wave for wave in old["waves"]}
    found = []
    for wave in new["waves"]:
        if wave["name"] not in before:
            continue
        for figure, (where, more_is_better) in _FIGURES.items():
            a, b = _at(before[wave["name"]], where), _at(wave, where)
            if a and b is not None:
                change = b / a - 1
                worse = (-change if more_is_better else change) > _NOTICED
                found.append(Row(wave["name"], figure, a, b, change, worse))
    return found


def broken(old: Json, new: Json) -> list[str]:
    """The promises that held in the old report and don't in the new one."""
    held = {(each["about"], each["wave"]) for each in old["checks"] if each["state"] == "holds"}
    return [
        f"{each['about']} ({each['wave']}): {each['detail']}"
        for each in new["checks"]
        if each["state"] != "holds" and (each["about"], each["wave"]) in held
    ]


def _at(wave: Json, where: tuple[str, ...]) -> float | None:
    value: object = wave
    for key in where:
        value = value.get(key) if isinstance(value, dict) else None
    return float(value) if isinstance(value, int | float) else None
