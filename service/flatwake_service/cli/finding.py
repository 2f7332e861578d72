"""What a look at a machine has found, and how it is shown."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

_MARKS = {True: "ok  ", False: "FAIL", None: "-   "}


@dataclass(frozen=True)
class Finding:
    """`ok` None: neither good nor bad. `cure` is what to do when it isn't ok."""

    name: str
    ok: bool | None
    text: str
    cure: str = ""


def show(findings: Sequence[Finding]) -> None:
    """Prints them, a line each and one for a cure that is needed."""
    width = max(len(finding.name) for finding in findings)
    for finding in findings:
        print(f"{_MARKS[finding.ok]} {finding.name:{width}}  {finding.text}")
        if finding.ok is not True and finding.cure:
            print(f"     {'':{width}}  -> {finding.cure}")
