"""How weights are stored: GGML's type numbers are the one code for every file format.

The numbers and block sizes stand here since the `gguf` library, which has them too, brings numpy
and a tenth of a second along wherever it is imported; a test holds the two against each other.
"""

from __future__ import annotations

from enum import IntEnum
from math import prod
from typing import Final

__all__ = [
    "FLOATS",
    "KNOWN",
    "QUANTIZED",
    "SUPPORTED",
    "WEIGHTS",
    "Format",
    "block_shape",
    "row_bytes",
    "tensor_bytes",
]


class Format(IntEnum):
    """A type's number in GGML. `weights` of them are stored together in `size` bytes."""

    weights: int
    size: int

    def __new__(cls, number: int, weights: int = 1, size: int = 1) -> Format:
        member = int.__new__(cls, number)
        member._value_ = number
        member.weights, member.size = weights, size
        return member

    F32 = 0, 1, 4
    F16 = 1, 1, 2
    Q4_0 = 2, 32, 18
    Q4_1 = 3, 32, 20
    Q5_0 = 6, 32, 22
    Q5_1 = 7, 32, 24
    Q8_0 = 8, 32, 34
    Q8_1 = 9, 32, 40
    Q2_K = 10, 256, 84
    Q3_K = 11, 256, 110
    Q4_K = 12, 256, 144
    Q5_K = 13, 256, 176
    Q6_K = 14, 256, 210
    Q8_K = 15, 256, 292
    IQ2_XXS = 16, 256, 66
    IQ2_XS = 17, 256, 74
    IQ3_XXS = 18, 256, 98
    IQ1_S = 19, 256, 50
    IQ4_NL = 20, 32, 18
    IQ3_S = 21, 256, 110
    IQ2_S = 22, 256, 82
    IQ4_XS = 23, 256, 136
    I8 = 24, 1, 1
    I16 = 25, 1, 2
    I32 = 26, 1, 4
    I64 = 27, 1, 8
    F64 = 28, 1, 8
    IQ1_M = 29, 256, 56
    BF16 = 30, 1, 2
    TQ1_0 = 34, 256, 54
    TQ2_0 = 35, 256, 66
    MXFP4 = 39, 32, 17
    NVFP4 = 40, 64, 36
    Q1_0 = 41, 128, 18


FLOATS: Final = (Format.F32, Format.F16, Format.BF16)
QUANTIZED: Final = (
    Format.Q8_0,
    Format.Q4_0,
    Format.Q4_1,
    Format.Q4_K,
    Format.Q5_K,
    Format.Q6_K,
)
WEIGHTS: Final = (*FLOATS, *QUANTIZED)
KNOWN: Final = " ".join(f.name for f in WEIGHTS)
"""The formats that a layer's weights may have, and their names for an error's cure."""
# Integers are read (a checkpoint may carry a position table) but are no weights.
INTEGERS: Final = (Format.I8, Format.I16, Format.I32, Format.I64)
SUPPORTED: Final = (*WEIGHTS, *INTEGERS, Format.F64)


def block_shape(format: Format) -> tuple[int, int]:  # noqa: A002
    """(weights, bytes) of one block; (1, item size) for plain types."""
    return format.weights, format.size


def row_bytes(format: Format, columns: int) -> int:  # noqa: A002
    """Bytes of a row of `columns` weights. `columns` is a multiple of the block."""
    weights, size = block_shape(format)
    assert columns % weights == 0, f"{columns} columns don't divide into {format.name} blocks"
    return columns // weights * size


def tensor_bytes(format: Format, shape: tuple[int, ...]) -> int:  # noqa: A002
    """Bytes of a whole tensor."""
    return prod(shape[:-1]) * row_bytes(format, shape[-1] if shape else 1)
