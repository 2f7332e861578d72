"""Options that are written as Kubernetes writes them: durations and sizes."""

from __future__ import annotations

from typing import Any

import typer

from flatwake_service.manifest.scalars import seconds, whole_bytes


def duration(text: Any) -> float:
    """`90s` or `10m` as seconds."""
    try:
        return seconds(text)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error


def size(text: Any) -> int:
    """`4Mi` as bytes."""
    try:
        return whole_bytes(text)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error
