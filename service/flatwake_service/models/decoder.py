"""What every decoder is: a model's steps as calls on ops, from embedding to logits."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

from flatwake_kernels import ops
from flatwake_kernels.buffer import Buffer
from flatwake_kernels.declaration import LinearHandle
from flatwake_kernels.dtype import Dtype
from flatwake_kernels.plan import Plan

from flatwake_service.models.cache import Cache, CacheShape
from flatwake_service.models.layers import Head
from flatwake_service.models.load import Loader
from flatwake_service.models.rope import Rope
from flatwake_service.models.rows import Rows
from flatwake_service.models.workspace import Workspace


@dataclass(frozen=True)
class Shape:
    """What the engine asks of a model. `context` is the checkpoint's own, in tokens."""

    vocabulary: int
    context: int
    hidden: int
    cache: CacheShape
    rope: Rope


class Decoder(ABC):
    """A model's weights on a backend. A cache is bound before anything is recorded.

    `dtype` is the activations', `activations` how they meet quantised weights. A decode step reads
    `step_bytes` of weights; `file_bytes` is what all of the checkpoint's tensors take in its files.
    """

    def __init__(
        self, loader: Loader, dtype: Dtype, shape: Shape, embedding: LinearHandle, head: Head
    ) -> None:
        self.dtype = dtype
        self.activations = loader.activations
        self.shape = shape
        # A step reads one row a token of an embedding that isn't the head as well.
        untied = embedding.bytes if head.weight is not embedding else 0
        self.step_bytes = loader.linear_bytes - untied
        self.file_bytes = loader.checkpoint.nbytes
        self._backend = loader.backend
        self._embedding = embedding
        self._head = head

    def bind(self, cache: Cache, context: int) -> None:
        """Record over this cache from now on; positions stay below `context`."""
        self._cache = cache
        table = self.shape.rope.table(context)
        self._rope = self._backend.allocate(*table.shape, dtype=Dtype.F32)
        self._rope.write(table)

    def decode(self, plan: Plan, rows: Rows, space: Workspace) -> Buffer:
        """One step of each row. Returns the last layer's output, [rows, hidden]."""
        return self._run(plan, rows, space, prefill=False)

    def prefill(self, plan: Plan, rows: Rows, space: Workspace) -> Buffer:
        """A chunk of one sequence. Returns the last layer's output, [rows, hidden]."""
        return self._run(plan, rows, space, prefill=True)

    def logits(self, plan: Plan, hidden: Buffer, rows: Rows, space: Workspace) -> Buffer:
        """float32 logits of each sequence's sample row, [sequences, vocabulary]."""
        return self._head.apply(plan, hidden, rows, space)

    def _run(self, plan: Plan, rows: Rows, space: Workspace, *, prefill: bool) -> Buffer:
        hidden = space.get("hidden", rows.rows, self.shape.hidden, dtype=self.dtype)
        plan.add(ops.Embedding(y=hidden, row_id=rows.row_id, live=rows.live, table=self._embedding))
        self._layers(plan, hidden, rows, space, prefill=prefill)
        return hidden

    @abstractmethod
    def _layers(
        self, plan: Plan, hidden: Buffer, rows: Rows, space: Workspace, *, prefill: bool
    ) -> None:
        """All layers, in place on hidden [rows, hidden]."""
