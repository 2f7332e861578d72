"""A named array of weights, still in its file."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flatwake_service.weights.formats import Format


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
