"""How a model's maker wants it sampled: generation_config.json's own values."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import isfinite
from typing import Any, Final

from flatwake_service.errors import CheckpointError
from flatwake_service.weights import Checkpoint
from flatwake_service.weights.safetensors import read_json

FILE: Final = "generation_config.json"


@dataclass(frozen=True)
class SamplingDefaults:
    """What a request that doesn't say gets; a model that doesn't say has OpenAI's defaults."""

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    repetition_penalty: float = 1.0


_LIMITS: Final[Mapping[str, tuple[Callable[[float], bool], str]]] = {
    "temperature": (lambda value: 0 <= value <= 2, "a number from 0 to 2"),
    "top_p": (lambda value: 0 <= value <= 1, "a number from 0 to 1"),
    "top_k": (lambda value: -1 <= value < 2**31 and value == int(value), "a whole number from -1"),
    "min_p": (lambda value: 0 <= value <= 1, "a number from 0 to 1"),
    "repetition_penalty": (lambda value: 0.01 <= value <= 100, "a number from 0.01 to 100"),
}


def load_sampling_defaults(checkpoint: Checkpoint) -> SamplingDefaults:
    """A model's own defaults; a GGUF file has none.

    Raises:
        CheckpointError: one of the values can't be sampled with.
    """
    path = checkpoint.path / FILE
    if checkpoint.kind == "gguf" or not path.exists():
        return SamplingDefaults()
    stated = read_json(path)
    given = {name: stated[name] for name in _LIMITS if stated.get(name) is not None}
    for name, value in given.items():
        fits, what = _LIMITS[name]
        if not _number(value) or not fits(value):
            raise CheckpointError(
                f"{path}: {name} is {str(value)[:40]}, not {what}",
                cure="correct it, or remove it from the file",
            )
    if "top_k" in given:
        given["top_k"] = int(given["top_k"])
    return SamplingDefaults(**given)


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and isfinite(value)
