"""Options that are written as Kubernetes writes them, durations and sizes, within the manifest's
bounds.
"""

from __future__ import annotations

from typing import Any

import typer

from flatwake_service.manifest import bounds
from flatwake_service.manifest.units import seconds, whole_bytes


def duration(text: Any) -> float:
    """`90s` or `10m` as seconds, more than none."""
    try:
        value = seconds(text)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error
    if value <= 0:
        raise typer.BadParameter(f"must be more than 0s, got {text}")
    return value


def startup(text: Any) -> float:
    """The same for a start's timeout, which has a least value."""
    value = duration(text)
    if value < seconds(bounds.STARTUP_MIN):
        raise typer.BadParameter(f"must be at least {bounds.STARTUP_MIN}, got {text}")
    return value


def size(text: Any) -> int:
    """`4Mi` as bytes."""
    try:
        return whole_bytes(text)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error


def body_size(text: Any) -> int:
    """The same for the largest body, which has a least value."""
    value = size(text)
    if value < whole_bytes(bounds.BODY_MIN):
        raise typer.BadParameter(f"must be at least {bounds.BODY_MIN}, got {text}")
    return value
