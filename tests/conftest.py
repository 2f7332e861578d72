"""What every part's tests may ask for."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
from flatwake_service.manifest import load
from flatwake_service.weights.fetch import fetch

# A shell starts background jobs with SIGINT ignored, and whatever they start inherits that: tests
# that press Ctrl-C would wait for ever.
signal.signal(signal.SIGINT, signal.default_int_handler)

EXAMPLE = Path(__file__).parents[1] / "examples" / "smollm2.yaml"


@pytest.fixture(scope="session")
def smollm2() -> Path:
    """SmolLM2's GGUF file, as `make up` fetches it: 93 MB once, then from the cache."""
    model = load(EXAMPLE).server.spec.model
    return fetch(model.source, digest=model.digest).path
