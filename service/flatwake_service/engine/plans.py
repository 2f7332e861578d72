"""Recorded plans: one a decode bucket, one a chunk bucket, and the head that ends a prompt."""

from __future__ import annotations

from dataclasses import dataclass

from flatwake_kernels.backend import Backend
from flatwake_kernels.plan import Plan

from flatwake_service.engine.arrays import Inputs, Outputs
from flatwake_service.engine.interface import row_buckets
from flatwake_service.engine.sampler import Sampler
from flatwake_service.models.decoder import Decoder
from flatwake_service.models.workspace import Workspace

SMALLEST_CHUNK = 16


def chunk_buckets(most: int) -> list[int]:
    """Lengths of a chunk that have a plan: 16, doubling, up to `most`."""
    buckets = [SMALLEST_CHUNK]
    while buckets[-1] < most:
        buckets.append(min(2 * buckets[-1], most))
    return buckets


@dataclass(frozen=True)
class Port:
    """Where plans of one kind take their inputs and leave their outputs."""

    inputs: Inputs
    outputs: Outputs
    rows: int
    sequences: int


class Plans:
    """All plans of an engine, by bucket. Each kind is recorded from the largest down.

    `chunk` plans end with the last layer; `head` chooses the first token after a prompt's end.
    `logits` float32 [rows, vocabulary] are those of the entries of whatever ran last.
    """

    def __init__(
        self,
        backend: Backend,
        decoder: Decoder,
        sampler: Sampler,
        decode: Port,
        prefill: Port,
        space: Workspace,
    ) -> None:
        self._backend = backend
        self._decoder = decoder
        self._sampler = sampler
        self._space = space
        self.chunk: dict[int, Plan] = {}
        self.decode: dict[int, Plan] = {}
        hidden = None
        for size in reversed(chunk_buckets(prefill.rows)):
            with backend.record() as plan:
                rows = prefill.inputs.rows(size, 1)
                last = decoder.prefill(plan, rows, self._space)
            # Every bucket's rows lie at the largest one's address.
            hidden = hidden or last
            self.chunk[size] = plan
        for size in reversed(row_buckets(decode.sequences)):
            self.decode[size] = self._record_decode(decode, size)
        assert hidden is not None
        with backend.record() as plan:
            rows = prefill.inputs.rows(prefill.rows, 1)
            logits = decoder.logits(plan, hidden, rows, self._space)
            sampler.record(plan, logits, rows, prefill.outputs)
        self.head = plan
        self.logits = self._space.whole("logits")

    def _record_decode(self, port: Port, size: int) -> Plan:
        with self._backend.record() as plan:
            rows = port.inputs.rows(size, size)
            hidden = self._decoder.decode(plan, rows, self._space)
            logits = self._decoder.logits(plan, hidden, rows, self._space)
            self._sampler.record(plan, logits, rows, port.outputs)
        return plan

    def all(self) -> list[tuple[int, Plan]]:
        """Each plan with the rows of its bucket; the head's one row belongs to a chunk."""
        return [*self.chunk.items(), (SMALLEST_CHUNK, self.head), *self.decode.items()]
