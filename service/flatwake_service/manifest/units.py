"""Kubernetes' quantities (`20Gi`) and Go's durations (`1m30s`) as numbers.

Apart from the models' types: commands read their options by these, and must not wait for pydantic.
"""

import re
from decimal import Decimal
from fractions import Fraction

QUANTITY_PATTERN = r"^[0-9]+(\.[0-9]+)?([numkMGTPE]|[KMGTPE]i|[eE][+-]?[0-9]+)?$"
DURATION_PATTERN = r"^([0-9]+(\.[0-9]+)?(ns|us|ms|s|m|h))+$"

_SUFFIX = {
    "": Decimal(1),
    "n": Decimal("1e-9"),
    "u": Decimal("1e-6"),
    "m": Decimal("1e-3"),
    **{letter: Decimal(1000) ** (i + 1) for i, letter in enumerate("kMGTPE")},
    **{f"{letter}i": Decimal(1024) ** (i + 1) for i, letter in enumerate("KMGTPE")},
}
_UNIT_NS = {"ns": 1, "us": 10**3, "ms": 10**6, "s": 10**9, "m": 60 * 10**9, "h": 3600 * 10**9}


def quantity(text: str) -> Decimal:
    """The number that a Kubernetes quantity stands for: `quantity("4Mi") == 4194304`."""
    if not re.match(QUANTITY_PATTERN, text):
        raise ValueError(f"{text!r} is no quantity: write a number with a suffix, such as 20Gi")
    number, suffix = re.match(r"([0-9.]+)(.*)", text).groups()  # type: ignore[union-attr]
    if suffix and suffix[0] in "eE" and len(suffix) > 1:
        return Decimal(number + suffix)
    return Decimal(number) * _SUFFIX[suffix]


def whole_bytes(text: str) -> int:
    """A quantity in bytes, rounded up."""
    return int(quantity(text).to_integral_value(rounding="ROUND_CEILING"))


def nanoseconds(text: str) -> int:
    """A Go duration in nanoseconds."""
    if not re.match(DURATION_PATTERN, text):
        raise ValueError(f"{text!r} is no duration: write a number with a unit, such as 90s or 10m")
    parts = re.findall(r"([0-9.]+)(ns|us|ms|s|m|h)", text)
    total = int(sum(Fraction(number) * _UNIT_NS[unit] for number, unit in parts))
    if total >= 2**63:
        raise ValueError(f"{text!r} is longer than 292 years: write a shorter duration")
    return total


def seconds(text: str) -> float:
    """A Go duration in seconds: `seconds("1m30s") == 90.0`."""
    return nanoseconds(text) / 1e9
