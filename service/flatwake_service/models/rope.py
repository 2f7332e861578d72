"""Rotary embedding: frequencies from a checkpoint's own words, and the table that kernels read."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flatwake_service.errors import UnsupportedModel


@dataclass(frozen=True, eq=False)
class Rope:
    """`frequencies` (float32, [rotary dims / 2]) in radians a position; `scale` on cos and sin."""

    frequencies: NDArray[np.float32]
    adjacent_pairs: bool = False
    scale: float = 1.0

    @property
    def dims(self) -> int:
        return 2 * len(self.frequencies)

    def table_bytes(self, positions: int) -> int:
        """Bytes that `table` takes."""
        return positions * 2 * self.frequencies.nbytes

    def table(self, positions: int) -> NDArray[np.float32]:
        """Cosines and sines, [positions, 2, dims / 2].

        The angle is a float32 product, as transformers computes it: a better one would differ
        from the oracle, which models were trained with.
        """
        angles = np.arange(positions, dtype=np.float32)[:, None] * self.frequencies
        table: NDArray[np.float32] = np.stack([np.cos(angles), np.sin(angles)], axis=1)
        return table * np.float32(self.scale)


def frequencies(theta: float, dims: int) -> NDArray[np.float32]:
    """The unscaled ones: theta^(-2i / dims)."""
    exponents = np.arange(0, dims, 2, dtype=np.float32) / np.float32(dims)
    values: NDArray[np.float32] = np.float32(1) / np.float32(theta) ** exponents
    return values.astype(np.float32)


def scaled(
    theta: float, dims: int, scaling: Mapping[str, Any] | None, context: int
) -> tuple[NDArray[np.float32], float]:
    """Frequencies and scale by the words of a config.json's rope parameters.

    Raises:
        UnsupportedModel: a scaling that is not known.
    """
    base = frequencies(theta, dims)
    kind = str((scaling or {}).get("rope_type") or (scaling or {}).get("type") or "default")
    if scaling is None or kind == "default":
        return base, 1.0
    if kind == "linear":
        return (base / np.float32(scaling["factor"])).astype(np.float32), 1.0
    if kind == "llama3":
        return _llama3(base, scaling), 1.0
    if kind == "yarn":
        return _yarn(theta, dims, scaling, context)
    raise UnsupportedModel(
        f"RoPE scaling {kind} is not supported", cure="known are default linear llama3 yarn"
    )


def _llama3(base: NDArray[np.float32], scaling: Mapping[str, Any]) -> NDArray[np.float32]:
    factor = float(scaling["factor"])
    low, high = float(scaling["low_freq_factor"]), float(scaling["high_freq_factor"])
    original = float(scaling["original_max_position_embeddings"])
    wavelength = 2 * math.pi / base
    smooth = (original / wavelength - low) / (high - low)
    mixed = (1 - smooth) * base / factor + smooth * base
    result = np.where(wavelength > original / low, base / factor, base)
    medium = (wavelength >= original / high) & (wavelength <= original / low)
    return np.where(medium, mixed, result).astype(np.float32)


def _yarn(
    theta: float, dims: int, scaling: Mapping[str, Any], context: int
) -> tuple[NDArray[np.float32], float]:
    """YaRN (arXiv 2309.00071), with the defaults of transformers."""
    factor = float(scaling["factor"])
    original = float(scaling.get("original_max_position_embeddings") or context)
    attention = scaling.get("attention_factor")
    scale = float(attention) if attention is not None else 0.1 * math.log(factor) + 1.0

    def dimension(rotations: float) -> float:
        return dims * math.log(original / (rotations * 2 * math.pi)) / (2 * math.log(theta))

    low = math.floor(dimension(float(scaling.get("beta_fast") or 32)))
    high = math.ceil(dimension(float(scaling.get("beta_slow") or 1)))
    low, high = max(low, 0), min(high, dims - 1)
    ramp = (np.arange(dims // 2, dtype=np.float32) - low) / max(high - low, 0.001)
    keep = 1 - np.clip(ramp, 0, 1)
    base = frequencies(theta, dims)
    return (base / factor * (1 - keep) + base * keep).astype(np.float32), scale
