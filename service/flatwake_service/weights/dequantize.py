"""Weights as float32, whatever they are stored as.

The block formats are decoded by the `gguf` library, whose numpy code is GGML's own definition;
the tests hold it against a scalar transcription of the formats.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from flatwake_service.errors import UnsupportedModel
from flatwake_service.weights.formats import KNOWN, QUANTIZED, Format
from flatwake_service.weights.tensor import Tensor


def widen(bits: NDArray[np.uint16]) -> NDArray[np.float32]:
    """BF16 bits as float32, of the same shape. Exact."""
    return (bits.astype(np.uint32) << np.uint32(16)).view(np.float32)


def dequantize(
    tensor: Tensor, rows: slice | NDArray[np.integer[Any]] | None = None
) -> NDArray[np.float32]:
    """A tensor's weights as float32, in its shape.

    With `rows` (a slice or an index array over its first dimension), only those rows are read.
    Raises UnsupportedModel for a format that holds no weights or isn't known.
    """
    data = tensor.data if rows is None else tensor.data[rows]
    return dequantize_data(data, tensor.format, tensor.name)


def dequantize_data(data: NDArray[Any], format: Format, name: str = "data") -> NDArray[np.float32]:  # noqa: A002
    """Stored data (as `Tensor.data` has it) as float32; the last dimension becomes weights."""
    if format == Format.F32:
        return np.asarray(data, dtype=np.float32)
    if format == Format.BF16:
        return widen(data)
    if format in (Format.F16, Format.F64):
        return data.astype(np.float32)
    if format not in QUANTIZED:
        raise UnsupportedModel(f"{name} is stored as {format.name}", cure=f"formats known: {KNOWN}")
    # Only a table that isn't prepared by a backend is decoded here, which most models lack.
    from gguf.constants import GGMLQuantizationType
    from gguf.quants import dequantize as dequantize_blocks

    with np.errstate(all="ignore"):  # scales that are Inf or NaN give what IEEE says
        result: NDArray[np.float32] = dequantize_blocks(
            np.ascontiguousarray(data), GGMLQuantizationType(int(format))
        )
    return result
