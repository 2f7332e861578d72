"""Pointwise functions of float32, without overflow warnings."""

from __future__ import annotations

import numpy as np


def sigmoid(x: np.ndarray) -> np.ndarray:
    """1 / (1 + exp(-x)), computed from exp(-|x|), which never overflows."""
    small = np.exp(-np.abs(x))
    value: np.ndarray = np.where(x >= 0, np.float32(1), small) / (np.float32(1) + small)
    return value


def silu(x: np.ndarray) -> np.ndarray:
    value: np.ndarray = x * sigmoid(x)
    return value


def softplus(x: np.ndarray) -> np.ndarray:
    """log(1 + exp(x))."""
    value: np.ndarray = np.maximum(x, np.float32(0)) + np.log1p(np.exp(-np.abs(x)))
    return value
