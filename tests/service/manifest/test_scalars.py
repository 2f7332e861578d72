"""Quantities and durations mean what Kubernetes and Go mean by them."""

from decimal import Decimal

import pytest
from flatwake_service.manifest import nanoseconds, quantity, seconds, whole_bytes

QUANTITIES = {
    "1": 1,
    "4Mi": 4 * 2**20,
    "20Gi": 20 * 2**30,
    "1.5Gi": 3 * 2**29,
    "1k": 1000,
    "1E": 10**18,
    "1e3": 1000,
    "1.5e-1": Decimal("0.15"),
    "250m": Decimal("0.25"),
}


@pytest.mark.parametrize(("text", "number"), QUANTITIES.items())
def test_quantity(text: str, number: Decimal) -> None:
    assert quantity(text) == number


@pytest.mark.parametrize("text", ["", "Gi", "1GB", "1 Gi", "-1", "0x10", "1e", "1.Gi"])
def test_no_quantity(text: str) -> None:
    with pytest.raises(ValueError, match="such as 20Gi"):
        quantity(text)


def test_bytes_are_rounded_up() -> None:
    assert whole_bytes("1500m") == 2


DURATIONS = {"90s": 90, "1m30s": 90, "1.5h": 5400, "250ms": 0.25, "1h1m1s": 3661}


@pytest.mark.parametrize(("text", "number"), DURATIONS.items())
def test_duration(text: str, number: float) -> None:
    assert seconds(text) == number


@pytest.mark.parametrize("text", ["", "10", "s", "1 s", "1d", "-1s", "1s "])
def test_no_duration(text: str) -> None:
    with pytest.raises(ValueError, match="such as 90s"):
        nanoseconds(text)
