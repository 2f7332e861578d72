"""Perplexity of a text, and how far int8 activations move the logits.

Counted as llama.cpp's llama-perplexity does: the text in chunks of `length` tokens, each from an
empty context, of which the second half is scored.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from flatwake_service.engine import drive
from flatwake_service.engine.runner import Runner
from flatwake_service.engine.sequence import Sequence as Placed


@dataclass
class Score:
    """`perplexity` by runner over `tokens` scored tokens. `error_mean` and `error_max`: absolute
    differences between the first runner's logits and the others'; 0 with one runner.
    """

    tokens: int = 0
    error_max: float = 0.0
    _loss: dict[str, float] = field(default_factory=dict)
    _error: float = 0.0
    _logits: int = 0

    @property
    def perplexity(self) -> dict[str, float]:
        return {name: math.exp(loss / self.tokens) for name, loss in self._loss.items()}

    @property
    def error_mean(self) -> float:
        return self._error / self._logits if self._logits else 0.0

    def add(self, logits: Mapping[str, NDArray[np.float32]], wanted: Sequence[int]) -> None:
        """`logits` float32 [chunks, vocabulary] by runner, before the tokens that were wanted."""
        self.tokens += len(wanted)
        first, *others = logits.values()
        for name, values in logits.items():
            top = values.max(axis=1)
            whole = top + np.log(np.exp(values - top[:, None]).sum(axis=1, dtype=np.float64))
            chosen = values[np.arange(len(wanted)), list(wanted)]
            self._loss[name] = self._loss.get(name, 0.0) + float((whole - chosen).sum())
        for values in others:
            difference = np.abs(values - first)
            self.error_max = max(self.error_max, float(difference.max()))
            self._error += float(difference.sum(dtype=np.float64))
            self._logits += difference.size


def score(
    runners: Mapping[str, Runner],
    ids: Sequence[int],
    chunks: int,
    length: int,
    heard: Callable[[int], None] = lambda tokens: None,
) -> Score:
    """Score the first `chunks` chunks of `ids` with every runner, step by step alongside.

    Raises:
        ValueError: there are fewer ids than that.
    """
    if len(ids) < chunks * length:
        raise ValueError(f"the text has {len(ids)} tokens, {chunks * length} are wanted")
    found = Score()
    cut = [list(ids[i * length : (i + 1) * length]) for i in range(chunks)]
    most = min(runner.slots for runner in runners.values())
    for begin in range(0, chunks, most):
        group = cut[begin : begin + most]
        placed = {name: _begin(runner, group) for name, runner in runners.items()}
        for position in range(1, length - 1):
            logits = {}
            for name, runner in runners.items():
                for sequence, chunk in zip(placed[name], group, strict=True):
                    sequence.ids.append(chunk[position])
                drive.decode(runner, placed[name])
                if position >= length // 2:
                    logits[name] = runner.logits(len(group))
            if logits:
                found.add(logits, [chunk[position + 1] for chunk in group])
            heard(len(group))
    return found


def _begin(runner: Runner, group: Sequence[list[int]]) -> list[Placed]:
    placed = drive.place(runner, [chunk[:1] for chunk in group], len(group[0]))
    for sequence in placed:
        drive.prefill(runner, sequence)
    return placed
