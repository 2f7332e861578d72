"""From a checkpoint's tensors to a backend's weights, with progress."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

import numpy as np
from flatwake_kernels.backend import Activations, Backend, Weight
from flatwake_kernels.buffer import Buffer
from flatwake_kernels.declaration import LinearHandle
from flatwake_kernels.dtype import Dtype
from numpy.typing import NDArray

from flatwake_service.errors import UnsupportedModel
from flatwake_service.weights import Checkpoint
from flatwake_service.weights.dequantize import dequantize
from flatwake_service.weights.formats import KNOWN, WEIGHTS
from flatwake_service.weights.tensor import Tensor


class Loader:
    """Takes tensors out of a checkpoint and prepares them on a backend.

    `progress(done, total)` counts bytes of the checkpoint's tensors; `linear_bytes` what all
    prepared layers together take to read once.
    """

    def __init__(
        self,
        checkpoint: Checkpoint,
        backend: Backend,
        activations: Activations,
        progress: Callable[[int, int], None],
    ) -> None:
        self.checkpoint = checkpoint
        self.backend = backend
        self.activations = activations
        self._progress = progress
        self._done = 0
        self.linear_bytes = 0

    def take(self, name: str, *shape: int) -> Tensor:
        """A tensor of the shape that the configuration implies.

        Raises:
            CheckpointError: it is missing.
            UnsupportedModel: it has another shape.
        """
        tensor = self.checkpoint.require(name)
        if tensor.shape != shape:
            raise UnsupportedModel(
                f"{self.checkpoint.path.name}: {name} has shape {list(tensor.shape)}, "
                f"its configuration implies {list(shape)}"
            )
        return tensor

    def linear(
        self,
        names: Sequence[str],
        rows: Sequence[int],
        columns: int,
        *,
        permutations: Mapping[int, NDArray[np.int32]] = MappingProxyType({}),
    ) -> LinearHandle:
        """One layer of several tensors' rows, one after another.

        `permutations[i]` says which of tensor i's rows comes where.
        """
        tensors = [self.take(n, r, columns) for n, r in zip(names, rows, strict=True)]
        for tensor in tensors:
            self._refuse_other_than_weights(tensor)
        views = [
            Weight(t.bytes, Dtype(int(t.format)), columns, permutations.get(i))
            for i, t in enumerate(tensors)
        ]
        handle = self.backend.prepare_linear(views, self.activations)
        self.linear_bytes += handle.bytes
        self._advance(*tensors)
        return handle

    def values(self, name: str, *shape: int) -> NDArray[np.float32]:
        """A small tensor as float32."""
        tensor = self.take(name, *shape)
        self._advance(tensor)
        return dequantize(tensor)

    def vector(self, name: str, *shape: int) -> Buffer:
        """A small tensor as float32 on the device."""
        return self.upload(self.values(name, *shape))

    def vectors(self, names: Sequence[str], sizes: Sequence[int]) -> Buffer:
        """Several vectors, one after another, as float32 on the device."""
        parts = [self.values(n, s) for n, s in zip(names, sizes, strict=True)]
        return self.upload(np.concatenate(parts))

    def upload(self, values: NDArray[np.float32]) -> Buffer:
        buffer = self.backend.allocate(*values.shape, dtype=Dtype.F32)
        buffer.write(values)
        return buffer

    def finish(self) -> None:
        """Everything that the model uses was taken; what it doesn't use counts as done, too."""
        self._done = self.checkpoint.nbytes
        self._advance()

    def _refuse_other_than_weights(self, tensor: Tensor) -> None:
        if tensor.format not in WEIGHTS:
            raise UnsupportedModel(
                f"{self.checkpoint.path.name}: {tensor.name} is stored as {tensor.format.name}, "
                "which holds no weights of a layer",
                cure=f"take a model whose weights are of {KNOWN}",
            )

    def _advance(self, *tensors: Tensor) -> None:
        self._done += sum(t.nbytes for t in tensors)
        self._progress(self._done, self.checkpoint.nbytes)
