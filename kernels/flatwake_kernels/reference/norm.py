"""RMS norms. All in float32; each row alone."""

from __future__ import annotations

import numpy as np

from flatwake_kernels.reference.activation import silu
from flatwake_kernels.reference.call import Call


def normalise(x: np.ndarray, eps: float) -> np.ndarray:
    """x / sqrt(mean(x²) + eps) over the last axis."""
    mean = np.mean(x * x, axis=-1, keepdims=True, dtype=np.float32)
    scaled: np.ndarray = x / np.sqrt(mean + np.float32(eps))
    return scaled


def _weight(call: Call) -> np.ndarray:
    weight: np.ndarray = call.array("weight") + np.float32(call.number("weight_offset"))
    return weight


def rms_norm(call: Call) -> None:
    live = call.live
    call.store("y", normalise(call.floats("x", live), call.number("eps")) * _weight(call), live)


def add_rms_norm(call: Call) -> None:
    live = call.live
    call.store("residual", call.floats("residual", live) + call.floats("x", live), live)
    rounded = call.floats("residual", live)
    call.store("y", normalise(rounded, call.number("eps")) * _weight(call), live)


def gated_rms_norm(call: Call) -> None:
    live = call.live
    x = call.floats("x", live)
    offset = call.size("gate_offset")
    width = call.size("heads") * call.size("width")
    gate = call.floats("gate", live)[:, offset : offset + width].reshape(x.shape)
    normal = normalise(x, call.number("eps")) * call.array("weight")
    call.store("y", normal * silu(gate), live)
