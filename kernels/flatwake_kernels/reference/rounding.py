"""Between float32, in which everything is computed, and what a buffer holds."""

from __future__ import annotations

import numpy as np

from flatwake_kernels.dtype import Dtype, narrow_bf16, widen_bf16


def widen(values: np.ndarray, dtype: Dtype) -> np.ndarray:
    """Elements of a buffer as float32; float32 itself is not copied."""
    if dtype == Dtype.BF16:
        return widen_bf16(values)
    return values.astype(np.float32, copy=False)


def narrow(values: np.ndarray, dtype: Dtype) -> np.ndarray:
    """float32 as elements of a buffer, rounded half to even."""
    if dtype == Dtype.BF16:
        return narrow_bf16(values)
    with np.errstate(over="ignore"):  # float16 overflows to infinity, as on every device
        return values.astype(dtype.numpy, copy=False)
