"""Random weights whose greedy choices are as clear as a trained model's, and depend on every layer.

Weights that are all alike leave a first choice little above the second: bfloat16 alone moves a
logit by more than a third of the margins are. Three habits of trained models are drawn here:

- A fourth of the residual's channels carries the token that was read, and no layer writes to them.
  They are exact in bfloat16, and an error in the others comes back through the layers less.
- The final norm, and so the head, reads the other channels alone. Layers are their only source:
  none is larger than the rest, and tokens don't choose themselves.
- A few of the tokens are common: the head's rows are larger there.

Queries, values, gates and decays are spread so that every op moves its layer's output.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

COMMON_TOKENS = 128
CARRIED, COMMON_ROW, ROW = 2.0, 0.05, 0.02
"""Deviations of an embedding's row: channels that carry it, those that the head reads."""

ABOUT: dict[str, tuple[float, float]] = {
    "layernorm": (0.3, 0.0),
    "q_norm": (0.2, 0.0),
    "k_norm": (0.2, 0.0),
    "linear_attn.norm": (0.4, 1.0),
    "conv1d": (0.5, 0.0),
    "A_log": (1.5, -3.0),
    "dt_bias": (1.5, 0.0),
    "o_proj": (0.0077, 0.0),
    "out_proj": (0.0023, 0.0),
    "down_proj": (0.0017, 0.0),
    "model.norm": (1.0, 8.0),
}
"""Deviation and mean by what a name has in it. Other matrices keep their input's size."""

ROTARY = 64
"""Channels of a head that rope turns: scores are mostly theirs, so that positions matter."""
BRANCHES = ("o_proj", "out_proj", "down_proj")
ROWS = 1024


def draw(
    name: str, shape: tuple[int, ...], rng: np.random.Generator, carried: NDArray[np.bool_]
) -> Iterator[NDArray[np.float32]]:
    """A tensor's values, some rows at a time. `carried` are the channels that layers only read."""
    deviation, mean = next(
        (about for part, about in ABOUT.items() if part in name), (shape[-1] ** -0.5, 0.0)
    )
    common = rng.choice(shape[0], min(shape[0], COMMON_TOKENS), replace=False)
    for start in range(0, shape[0], ROWS):
        stop = min(start + ROWS, shape[0])
        values = rng.standard_normal((stop - start, *shape[1:]), dtype=np.float32)
        if "embed_tokens" in name or "lm_head" in name:
            rows = np.full((stop - start, 1), ROW, np.float32)
            rows[common[(common >= start) & (common < stop)] - start] = COMMON_ROW
            values *= np.where(carried, np.float32(CARRIED), rows)
        else:
            values = values * np.float32(deviation) + np.float32(mean)
        if name.endswith(tuple(f"{branch}.weight" for branch in BRANCHES)):
            values[carried[start:stop]] = 0
        if name.endswith(("q_norm.weight", "k_norm.weight")):
            values[:ROTARY] += 1
        if name == "model.norm.weight":
            values[carried[start:stop]] = -1  # its factor is one more
        yield values


def carried_channels(hidden: int, seed: int) -> NDArray[np.bool_]:
    """Which: anywhere, so that no lane of a kernel has them all."""
    found = np.zeros(hidden, np.bool_)
    found[np.random.default_rng((seed, hidden)).choice(hidden, hidden // 4, replace=False)] = True
    return found
