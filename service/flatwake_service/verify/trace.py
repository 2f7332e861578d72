"""What one engine said to a prompt: its greedy tokens and the logits that it chose them by."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

TOP = 8
"""Logits kept of each position: the largest, enough for the margin and the error."""


@dataclass(frozen=True, eq=False)
class Trace:
    """`tokens[i]` is the argmax after `prompt + tokens[:i]`.

    `top_ids` and `top_logits` `[len(tokens), TOP]` are the largest logits there, largest first.
    """

    prompt: tuple[int, ...]
    tokens: tuple[int, ...]
    top_ids: NDArray[np.int32]
    top_logits: NDArray[np.float32]

    @property
    def margins(self) -> NDArray[np.float32]:
        """How far the first choice was above the second."""
        return self.top_logits[:, 0] - self.top_logits[:, 1]


def top_of(logits: NDArray[np.float32]) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
    """Ids and values of the TOP largest, largest first; the smaller id first on a tie."""
    few = np.argpartition(-logits, TOP)[:TOP]
    order = np.lexsort((few, -logits[few]))
    ids = few[order].astype(np.int32)
    return ids, logits[ids].astype(np.float32)


def save(path: Path, traces: Iterable[Trace], notes: dict[str, str]) -> None:
    """One compressed file; `notes` say what made it (script, versions)."""
    arrays: dict[str, NDArray[np.generic]] = {}
    for index, trace in enumerate(traces):
        arrays[f"{index}.prompt"] = np.array(trace.prompt, np.int32)
        arrays[f"{index}.tokens"] = np.array(trace.tokens, np.int32)
        arrays[f"{index}.top_ids"] = trace.top_ids
        arrays[f"{index}.top_logits"] = trace.top_logits
    for key, value in notes.items():
        arrays[f"note.{key}"] = np.array(value)
    path.parent.mkdir(parents=True, exist_ok=True)
    np.savez_compressed(path, **arrays)  # type: ignore[arg-type]  # numpy's stub wants bool too


def load(path: Path) -> tuple[list[Trace], dict[str, str]]:
    with np.load(path) as file:
        notes = {k[5:]: str(file[k]) for k in file.files if k.startswith("note.")}
        count = sum(k.endswith(".prompt") for k in file.files)
        traces = [_load(file, index) for index in range(count)]
    return traces, notes


def _load(file: np.lib.npyio.NpzFile, index: int) -> Trace:
    return Trace(
        tuple(int(i) for i in file[f"{index}.prompt"]),
        tuple(int(i) for i in file[f"{index}.tokens"]),
        file[f"{index}.top_ids"],
        file[f"{index}.top_logits"],
    )


@dataclass(frozen=True)
class Comparison:
    """`error` is the largest logit difference seen; positions whose margin is below it don't
    count. `mismatches` are (trace, position, theirs, ours) of those that do.
    """

    error: float
    positions: int
    counted: int
    mismatches: tuple[tuple[int, int, int, int], ...]

    @property
    def equal(self) -> bool:
        return not self.mismatches and self.counted > 0

    @property
    def share(self) -> float:
        """Of the positions, those that count."""
        return self.counted / self.positions if self.positions else 0.0


def compare(oracle: Sequence[Trace], ours: Sequence[NDArray[np.float32]]) -> Comparison:
    """Hold our logits `[tokens, vocabulary]` of each trace against the oracle's."""
    error = 0.0
    for trace, logits in zip(oracle, ours, strict=True):
        near = np.take_along_axis(logits, trace.top_ids, axis=1)
        error = max(error, float(np.abs(near - trace.top_logits).max()))
    counted, mismatches = 0, []
    for number, (trace, logits) in enumerate(zip(oracle, ours, strict=True)):
        chosen = logits.argmax(axis=1)
        for position in np.flatnonzero(trace.margins >= error):
            counted += 1
            theirs, mine = trace.tokens[position], int(chosen[position])
            if theirs != mine:
                mismatches.append((number, int(position), theirs, mine))
    return Comparison(error, sum(len(t.tokens) for t in oracle), counted, tuple(mismatches))
