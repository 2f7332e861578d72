"""Element types and weight formats. The numbers are GGML's own, so that a file's code is ours."""

from __future__ import annotations

from enum import IntEnum

import numpy as np
from numpy.typing import DTypeLike


class Dtype(IntEnum):
    """Types that a buffer may hold, then block formats that only weights may have."""

    F32 = 0
    F16 = 1
    BF16 = 30
    I8 = 24
    I32 = 26
    I64 = 27
    Q4_0 = 2
    Q4_1 = 3
    Q8_0 = 8
    Q4_K = 12
    Q5_K = 13
    Q6_K = 14

    @property
    def block(self) -> int:
        """Elements in one block of the format (1 for plain types)."""
        return _BLOCKS[self][0]

    @property
    def block_bytes(self) -> int:
        """Bytes of one block."""
        return _BLOCKS[self][1]

    @property
    def quantised(self) -> bool:
        return self.block > 1

    def bytes(self, elements: int) -> int:
        """Bytes of `elements` consecutive elements, which fill whole blocks."""
        blocks, rest = divmod(elements, self.block)
        assert rest == 0, f"{elements} elements do not fill {self.name} blocks of {self.block}"
        return blocks * self.block_bytes

    @property
    def numpy(self) -> np.dtype[np.generic]:
        """The numpy type of one element; bfloat16, which numpy lacks, is viewed as uint16."""
        return np.dtype(_NUMPY[self])


_BLOCKS: dict[Dtype, tuple[int, int]] = {
    Dtype.F32: (1, 4),
    Dtype.F16: (1, 2),
    Dtype.BF16: (1, 2),
    Dtype.I8: (1, 1),
    Dtype.I32: (1, 4),
    Dtype.I64: (1, 8),
    Dtype.Q4_0: (32, 18),
    Dtype.Q4_1: (32, 20),
    Dtype.Q8_0: (32, 34),
    Dtype.Q4_K: (256, 144),
    Dtype.Q5_K: (256, 176),
    Dtype.Q6_K: (256, 210),
}

_NUMPY: dict[Dtype, DTypeLike] = {
    Dtype.F32: np.float32,
    Dtype.F16: np.float16,
    Dtype.BF16: np.uint16,
    Dtype.I8: np.int8,
    Dtype.I32: np.int32,
    Dtype.I64: np.int64,
}


def widen_bf16(values: np.ndarray) -> np.ndarray:
    """uint16 bit patterns of bfloat16 as float32 (exact)."""
    wide: np.ndarray = (values.astype(np.uint32) << 16).view(np.float32)
    return wide


def narrow_bf16(values: np.ndarray) -> np.ndarray:
    """float32 as uint16 bit patterns of bfloat16, rounded half to even; NaN stays NaN."""
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
    rounded = ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)
    narrow: np.ndarray = np.where(np.isnan(values), np.uint16(0x7FC0), rounded)
    return narrow
