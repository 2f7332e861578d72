"""Where a model on disk came from: the note that `flatwake fetch` leaves beside it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from flatwake_service.weights.cache import RECORD


@dataclass(frozen=True)
class Provenance:
    """Empty where a model wasn't fetched by us."""

    source: str | None = None
    revision: str | None = None
    digest: str | None = None


def provenance(model: Path) -> Provenance:
    """What is known of the model at a path, a file or a folder."""
    folder = model if model.is_dir() else model.parent
    try:
        note = json.loads((folder / RECORD).read_text())
        fields = {name: note[name] for name in ("source", "revision", "digest")}
    except (OSError, ValueError, KeyError, TypeError):
        return Provenance()
    return Provenance(**{name: str(value) or None for name, value in fields.items()})
