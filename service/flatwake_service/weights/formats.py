"""How weights are stored: GGML's type numbers are the one code for every file format."""

from __future__ import annotations

from math import prod
from typing import Any, Final

import numpy as np
from gguf.constants import GGML_QUANT_SIZES
from gguf.constants import GGMLQuantizationType as Format

__all__ = [
    "FLOATS",
    "KNOWN",
    "QUANTIZED",
    "SUPPORTED",
    "WEIGHTS",
    "Format",
    "block_shape",
    "row_bytes",
    "storage",
]

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

_STORAGE: Final[dict[Format, np.dtype[Any]]] = {
    Format.F32: np.dtype("<f4"),
    Format.F16: np.dtype("<f2"),
    Format.BF16: np.dtype("<u2"),  # numpy has no bfloat16: the bits, see `dequantize`
    Format.F64: np.dtype("<f8"),
    Format.I8: np.dtype("i1"),
    Format.I16: np.dtype("<i2"),
    Format.I32: np.dtype("<i4"),
    Format.I64: np.dtype("<i8"),
}


def storage(format: Format) -> np.dtype[Any]:  # noqa: A002 (the field's own word)
    """The numpy dtype that a tensor's data has: uint8 for block formats, uint16 for BF16."""
    return _STORAGE.get(format, np.dtype("u1"))


def block_shape(format: Format) -> tuple[int, int]:  # noqa: A002
    """(weights, bytes) of one block; (1, item size) for plain types."""
    weights, size = GGML_QUANT_SIZES[format]
    return weights, size


def row_bytes(format: Format, columns: int) -> int:  # noqa: A002
    """Bytes of a row of `columns` weights. `columns` is a multiple of the block."""
    weights, size = block_shape(format)
    assert columns % weights == 0, f"{columns} columns don't divide into {format.name} blocks"
    return columns // weights * size


def tensor_bytes(format: Format, shape: tuple[int, ...]) -> int:  # noqa: A002
    """Bytes of a whole tensor."""
    return prod(shape[:-1]) * row_bytes(format, shape[-1] if shape else 1)
