"""A promise that a run holds or doesn't."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class State(StrEnum):
    HOLDS = "holds"
    FAILS = "fails"
    NOT_SHOWN = "not shown"


@dataclass(frozen=True)
class Check:
    """`about` names the promise, `wave` where it was looked at; `required` says whether the run
    fails with it. `detail` has the figures."""

    about: str
    state: State
    detail: str
    wave: str = ""
    required: bool = True

    @property
    def passes(self) -> bool:
        return self.state is State.HOLDS or not self.required

    def as_json(self) -> dict[str, str | bool]:
        return {
            "about": self.about,
            "wave": self.wave,
            "state": self.state.value,
            "required": self.required,
            "detail": self.detail,
        }


def check(about: str, wave: str, wrong: list[str], right: str, required: bool = True) -> Check:
    """Holds if nothing is wrong; else it fails with what is, the first five."""
    if not wrong:
        return Check(about, State.HOLDS, right, wave, required)
    more = f"; and {len(wrong) - 5} more" if len(wrong) > 5 else ""
    return Check(about, State.FAILS, "; ".join(wrong[:5]) + more, wave, required)
