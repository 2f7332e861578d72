"""A named array of weights, still in its file."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from flatwake_service.weights.formats import Format, block_shape

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


@dataclass(frozen=True, slots=True, eq=False)
class Tensor:
    """A view of a tensor in a mapped file; nothing is read until its data is.

    `shape` is row-major, as Hugging Face writes it: a linear layer's is (rows, columns) =
    (outputs, inputs), whatever file it came from.

    `data` is read-only and has the storage type of its format: float32, float16, uint16 (BF16's
    bits) or an integer type with `shape` itself, and for block formats uint8 with the last
    dimension in bytes: (rows, row_bytes).
    """

    name: str
    shape: tuple[int, ...]
    format: Format
    data: NDArray[Any]

    @property
    def columns(self) -> int:
        """Weights in a row; 1 for a scalar."""
        return self.shape[-1] if self.shape else 1

    @property
    def rows(self) -> int:
        """Rows of all leading dimensions together; 1 for a vector."""
        return prod(self.shape[:-1])

    @property
    def nbytes(self) -> int:
        """Bytes in the file."""
        return int(self.data.nbytes)

    @property
    def bytes(self) -> NDArray[np.uint8]:
        """The stored bytes, (rows, row_bytes), without a copy."""
        return self.data.reshape(self.rows, -1).view(np.uint8)


def read_tensor(name: str, shape: tuple[int, ...], format: Format, stored: memoryview) -> Tensor:  # noqa: A002
    """The tensor that a file's bytes are, without a copy where they are aligned."""
    weights, size = block_shape(format)
    data = np.frombuffer(stored, np.uint8).view(storage(format))
    stored_shape = (*shape[:-1], shape[-1] // weights * size) if weights > 1 else shape
    # A safetensors file may leave its data unaligned; that tensor alone is copied.
    typed = np.require(data.reshape(stored_shape), requirements="A")
    typed.flags.writeable = False
    return Tensor(name, shape, format, typed)


def storage(format: Format) -> np.dtype[Any]:  # noqa: A002 (the field's own word)
    """The numpy dtype that a tensor's data has: uint8 for block formats, uint16 for BF16."""
    return _STORAGE.get(format, np.dtype("u1"))
