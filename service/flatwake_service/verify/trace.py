"""What one engine said to a prompt: its greedy tokens and the logits that it chose them by."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

from flatwake_service.errors import FlatwakeError

TOP = 8
"""Logits kept of each position: the largest, enough for the margin and the error."""

LEAST_SHARE = 0.8
"""Of the positions, those that must count. A wrong model's error exceeds nearly every margin, so
that few positions would be left to differ.
"""
LEAST_SHARE_ROUNDED = 0.5
"""The same where activations are of 16 bits and the oracle's aren't, or of 8 bits, where a last bit
turns one rounding over and that the next layer's: rounding alone is then larger than many margins
(211 of the hybrid fixture's 288 positions count in bf16, 835 of SmolLM2's 1280 in int8).
"""


class TracesUnreadable(FlatwakeError):
    """A file that `verify --save` didn't write, or not to its end."""

    def __init__(self, path: Path, why: str) -> None:
        super().__init__(
            f"{path} holds no traces: {why}", cure="make them with flatwake verify MODEL --save"
        )


@dataclass(frozen=True, eq=False)
class Trace:
    """`tokens[i]` is the argmax after `prompt + tokens[:i]`, or `prompt + fed[:i]` if those were
    fed.

    `top_ids` and `top_logits` `[len(tokens), TOP]` are the largest logits there, largest first;
    `errors` `[len(tokens)]` the most that any logit there moved by when the oracle computed in 16
    bits, if it was asked.
    """

    prompt: tuple[int, ...]
    tokens: tuple[int, ...]
    top_ids: NDArray[np.int32]
    top_logits: NDArray[np.float32]
    fed: tuple[int, ...] = ()
    errors: NDArray[np.float32] | None = None

    @property
    def lead(self) -> tuple[int, ...]:
        """What follows the prompt when the trace is replayed."""
        return self.fed or self.tokens

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
        if trace.fed:
            arrays[f"{index}.fed"] = np.array(trace.fed, np.int32)
        if trace.errors is not None:
            arrays[f"{index}.errors"] = trace.errors
    for key, value in notes.items():
        arrays[f"note.{key}"] = np.array(value)
    path.parent.mkdir(parents=True, exist_ok=True)
    np.savez_compressed(path, **arrays)  # type: ignore[arg-type]  # numpy's stub wants bool too


def load(path: Path) -> tuple[list[Trace], dict[str, str]]:
    """The traces of a file, and what made them.

    Raises:
        TracesUnreadable: there are none in it.
    """
    try:
        # Opened here: numpy leaves a file open that turns out to be damaged.
        with path.open("rb") as stored, np.load(stored) as file:
            notes = {k[5:]: str(file[k]) for k in file.files if k.startswith("note.")}
            count = sum(k.endswith(".prompt") for k in file.files)
            traces = [_load(file, index) for index in range(count)]
    except (OSError, EOFError, ValueError, KeyError, AttributeError, BadZipFile) as error:
        raise TracesUnreadable(path, str(error)) from error
    if not traces:
        raise TracesUnreadable(path, "the file has none")
    return traces, notes


def _load(file: np.lib.npyio.NpzFile, index: int) -> Trace:
    return Trace(
        tuple(int(i) for i in file[f"{index}.prompt"]),
        tuple(int(i) for i in file[f"{index}.tokens"]),
        file[f"{index}.top_ids"],
        file[f"{index}.top_logits"],
        tuple(int(i) for i in file[f"{index}.fed"]) if f"{index}.fed" in file.files else (),
        file[f"{index}.errors"] if f"{index}.errors" in file.files else None,
    )


@dataclass(frozen=True)
class Comparison:
    """`error` is the largest logit difference seen, or by how much the oracle itself was found to
    err at most; positions whose margin is below it don't count. `mismatches` are (trace, position,
    theirs, ours) of those that do.

    `least` is the share of the positions that must count, or nothing is shown.
    """

    error: float
    positions: int
    counted: int
    mismatches: tuple[tuple[int, int, int, int], ...]
    least: float

    @property
    def equal(self) -> bool:
        return self.enough and not self.mismatches

    @property
    def enough(self) -> bool:
        """Whether so many positions count that their equality says something."""
        return self.positions > 0 and self.share >= self.least

    @property
    def share(self) -> float:
        """Of the positions, those that count."""
        return self.counted / self.positions if self.positions else 0.0


def compare(
    oracle: Sequence[Trace],
    ours: Sequence[NDArray[np.float32]],
    *,
    least: float = LEAST_SHARE,
) -> Comparison:
    """Hold our logits `[tokens, vocabulary]` of each trace against the oracle's."""
    errors = [
        np.abs(np.take_along_axis(logits, trace.top_ids, axis=1) - trace.top_logits).max()
        for trace, logits in zip(oracle, ours, strict=True)
    ]
    # numpy's maximum keeps a NaN, below which no margin is.
    error = float(np.max(errors, initial=0.0))
    own = [trace.errors.max() for trace in oracle if trace.errors is not None]
    if np.isfinite(error) and own:
        error = float(max(own))
    counted, mismatches = 0, []
    for number, (trace, logits) in enumerate(zip(oracle, ours, strict=True)):
        chosen = logits.argmax(axis=1)
        for position in np.flatnonzero(trace.margins >= error):
            counted += 1
            theirs, mine = trace.tokens[position], int(chosen[position])
            if theirs != mine:
                mismatches.append((number, int(position), theirs, mine))
    positions = sum(len(t.tokens) for t in oracle)
    return Comparison(error, positions, counted, tuple(mismatches), least)
