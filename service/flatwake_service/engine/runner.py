"""Runs batches on one device: uploads what a step needs, launches its plans, reads its tokens."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec
import numpy as np
from flatwake_kernels.backend import Activations, Backend
from flatwake_kernels.backends import open_backend
from flatwake_kernels.dtype import Dtype
from flatwake_kernels.ops import BLOCK_TOKENS
from flatwake_kernels.plan import Plan
from numpy.typing import NDArray

from flatwake_service.engine.arrays import Inputs, Outputs, Span
from flatwake_service.engine.bandwidth import measure_bandwidth
from flatwake_service.engine.batch import Batch, Chunk, DecodeEntry, Result, Sampled
from flatwake_service.engine.config import EngineConfig
from flatwake_service.engine.graphs import wants_graph
from flatwake_service.engine.interface import row_buckets
from flatwake_service.engine.messages import Device as MessageDevice
from flatwake_service.engine.plans import Plans, Port, chunk_buckets
from flatwake_service.engine.pool import PoolSize, available_bytes, size_pool
from flatwake_service.engine.sampler import Sampler, read_logprobs
from flatwake_service.engine.sequence import Sequence
from flatwake_service.models.cache import Cache
from flatwake_service.models.decoder import Decoder
from flatwake_service.models.load import Loader
from flatwake_service.models.registry import build_decoder
from flatwake_service.weights import Checkpoint, open_checkpoint

Progress = Callable[[str, int, int], None]
"""Called with a phase (loading: bytes, warming: plans), what is done, and all of it."""

HOST_BACKENDS = ("reference", "cpu", "emulation")
KV_TYPES = {"float32": Dtype.F32, "float16": Dtype.F16, "bfloat16": Dtype.BF16}


@dataclass(frozen=True)
class DeviceRow:
    """What a decode row holds on the device once its step has sampled."""

    sequence: Sequence
    start: int
    slot: int
    blocks: list[int]
    id: int


class Runner:
    """A decoder over its cache, with every plan recorded. See `interface.StepRunner`."""

    def __init__(
        self, backend: Backend, decoder: Decoder, config: EngineConfig, kv_dtype: Dtype
    ) -> None:
        self.backend = backend
        self.decoder = decoder
        self.kv_dtype = kv_dtype
        self.slots = config.max_sequences
        self.recurrent = bool(decoder.shape.cache.states)
        pool = _pool(backend, decoder, config, kv_dtype)
        self.context, self.blocks = pool.context, pool.blocks
        cache = Cache(backend, decoder.shape.cache, kv_dtype, pool.blocks + 1, self.slots + 1)
        self._cache = cache
        decoder.bind(cache, pool.context)
        self.vocabulary = decoder.shape.vocabulary
        live = min(config.vocabulary or self.vocabulary, self.vocabulary)
        self._sampler = Sampler(backend, self.slots, self.vocabulary, live)
        table = -(-pool.context // BLOCK_TOKENS)
        most = row_buckets(config.max_sequences)[-1]
        self._decode = Port(
            Inputs(backend, most, most, table), Outputs(backend, most), most, config.max_sequences
        )
        chunk = chunk_buckets(config.prefill_tokens)[-1]
        self._prefill = Port(Inputs(backend, chunk, 1, table), Outputs(backend, 1), chunk, 1)
        self.plans = Plans(backend, decoder, self._sampler, self._decode, self._prefill)
        self._event = backend.event()
        self.device = MessageDevice(
            backend.device.name, backend.device.architecture, backend.device.memory_bytes
        )
        self.bandwidth_bytes = measure_bandwidth(backend)
        self.model_bytes = decoder.file_bytes
        self.model_context = decoder.shape.context
        self.graph_replays = 0
        self.graph_captures = 0
        self._policy = config.graphs
        self._captured: set[int] = set()
        self._batch: Batch | None = None
        self._rows: list[DeviceRow] = []
        self._launched = 0.0
        self._touched: set[int] = set()

    @property
    def max_rows(self) -> int:
        """Rows that the largest decode bucket holds."""
        return self._decode.rows

    @property
    def max_chunk(self) -> int:
        """Positions that the largest chunk bucket holds."""
        return self._prefill.rows

    def logits(self, count: int) -> NDArray[np.float32]:
        """float32 [count, vocabulary] of the entries of the part that was read last."""
        return self.plans.logits.head(count).read()

    def warm(self, progress: Progress) -> None:
        """Run every plan once on padding alone, and capture those that the policy wants."""
        for port in (self._decode, self._prefill):
            port.inputs.fill([])
            port.inputs.upload()
        plans = self.plans.all()
        for done, (rows, plan) in enumerate(plans):
            progress("warming", done, len(plans))
            plan.run()
            if wants_graph(self._policy, self.backend.name, self.device.architecture, rows):
                plan.capture()
                self._captured.add(id(plan))
        self.graph_captures = len(self._captured)
        self._event.record()
        self._event.wait()
        progress("warming", len(plans), len(plans))

    def take(self, taken: Sequence) -> None:
        """A sequence got its slot: describe its sampling and zero its state."""
        self._sampler.take(taken)
        if self.recurrent:
            self._cache.zero(taken.slot)

    def launch(self, batch: Batch) -> None:
        assert self._batch is None, "one step at a time"
        self._batch = batch
        self._launched = time.monotonic()
        if batch.decode:
            spans = [Span(e.sequence, e.start, e.count, e.samples) for e in batch.decode]
            rows = sum(s.count for s in spans)
            bucket = next(n for n in row_buckets(self.slots) if n >= rows)
            if not self._continues(spans):
                self._start(self._decode, spans)
            self._run(self.plans.decode[bucket])
            self._decode.outputs.download()
            self._event.record()

    def read(self) -> Iterator[Result]:
        batch, self._batch = self._batch, None
        assert batch is not None, "launch comes first"
        if batch.decode:
            yield self._result(self._decode, batch.decode, self._launched)
        for chunk in batch.chunks:
            began = time.monotonic()
            self._start(
                self._prefill, [Span(chunk.sequence, chunk.start, chunk.count, chunk.samples)]
            )
            bucket = next(n for n in chunk_buckets(self._prefill.rows) if n >= chunk.count)
            self._run(self.plans.chunk[bucket])
            if chunk.samples:
                self._run(self.plans.head)
            self._prefill.outputs.download()
            self._event.record()
            yield self._result(self._prefill, (chunk,), began)

    def kv_touched_bytes(self) -> int:
        return len(self._touched) * self.decoder.shape.cache.block_bytes(self.kv_dtype)

    def device_bytes(self) -> int:
        return self.backend.memory().allocated

    def close(self) -> None:
        self.backend.close()

    def _continues(self, spans: list[Span]) -> bool:
        """Whether the device's rows are these already: sampling has moved each one on by itself."""
        return len(spans) == len(self._rows) and all(
            span.count == 1
            and span.samples
            and span.sequence is row.sequence
            and span.start == row.start
            and span.sequence.slot == row.slot
            and span.sequence.blocks == row.blocks
            and span.sequence.ids[span.start] == row.id
            for span, row in zip(spans, self._rows, strict=True)
        )

    def _advanced(self, entries: tuple[DecodeEntry | Chunk, ...]) -> list[DeviceRow]:
        """The rows that a step leaves; none where a sequence had several, or one didn't sample."""
        if any(entry.count != 1 or not entry.samples for entry in entries):
            return []
        ids = self._decode.outputs.next_ids(len(entries))
        return [
            DeviceRow(e.sequence, e.start + 1, e.sequence.slot, list(e.sequence.blocks), number)
            for e, number in zip(entries, ids, strict=True)
        ]

    def _run(self, plan: Plan) -> None:
        plan.run()
        self.graph_replays += id(plan) in self._captured

    def _start(self, port: Port, spans: list[Span]) -> None:
        for span in spans:
            first, last = span.start // BLOCK_TOKENS, (span.start + span.count - 1) // BLOCK_TOKENS
            self._touched.update(span.sequence.blocks[first : last + 1])
        port.inputs.fill(spans)
        port.inputs.upload()

    def _result(self, port: Port, entries: tuple[DecodeEntry | Chunk, ...], began: float) -> Result:
        self._event.wait()
        sampled = [
            Sampled(
                entry.sequence,
                number,
                read_logprobs(port.outputs, index, entry.sequence.sampling.logprobs),
            )
            for index, (entry, number) in enumerate(
                zip(entries, port.outputs.next_ids(len(entries)), strict=True)
            )
            if entry.samples
        ]
        if port is self._decode:
            self._rows = self._advanced(entries)
        seconds = time.monotonic() - began
        return Result(entries, tuple(sampled), seconds, self._moved(entries))

    def _moved(self, entries: tuple[DecodeEntry | Chunk, ...]) -> int:
        """Bytes that the part had to move: weights once, KV read and written, state both ways."""
        shape = self.decoder.shape.cache
        position = shape.block_bytes(self.kv_dtype) // BLOCK_TOKENS
        total = self.decoder.step_bytes
        for entry in entries:
            seen = entry.start + entry.count
            total += position * (seen + entry.count) + 2 * shape.slot_bytes
        return total


def open_runner(
    config: EngineConfig,
    progress: Progress,
    heartbeat: int = 0,
    vocabulary: Callable[[], int] | None = None,
) -> Runner:
    """Load the configured model on its backend, size the pool, record and warm every plan.

    `vocabulary` is asked for `config.vocabulary` once the weights are there.

    Raises:
        BackendUnavailable: the backend cannot serve here.
        CheckpointError: the model's files are damaged or not supported.
        PoolTooSmall: there is no memory left for KV.
    """
    checkpoint = open_checkpoint(Path(config.model))
    backend = open_backend(
        config.backend,
        device=config.device,
        threads=config.threads,
        heartbeat=heartbeat,
        settings=_settings(),
    )
    kv_dtype, dtype, activations = _numerics(config, checkpoint)
    loader = Loader(
        checkpoint, backend, activations, lambda done, all_: progress("loading", done, all_)
    )
    decoder = build_decoder(loader, dtype)
    if vocabulary is not None:
        config = msgspec.structs.replace(config, vocabulary=vocabulary())
    runner = Runner(backend, decoder, config, kv_dtype)
    runner.warm(progress)
    return runner


def _settings() -> dict[str, str]:
    """A kernel library's own switches: FLATWAKE_KERNEL_SETTINGS=name=value,…"""
    text = os.environ.get("FLATWAKE_KERNEL_SETTINGS", "")
    return dict(pair.split("=", 1) for pair in text.split(",") if "=" in pair)


def _numerics(config: EngineConfig, checkpoint: Checkpoint) -> tuple[Dtype, Dtype, Activations]:
    """Types of KV and activations, and how quantised weights meet them.

    Left to us, quantised weights meet int8 activations where that is the fast path: on the CPU.
    """
    formats = {Dtype(int(f)) for f in checkpoint.weight_formats()}
    quantised = any(f.quantised for f in formats)
    activations: Activations = "float" if config.activations == "float" else "int8"
    if config.activations == "auto" and not (quantised and config.backend == "cpu"):
        activations = "float"
    stored = Dtype.F32
    if quantised or Dtype.F16 in formats:
        stored = Dtype.F16
    elif Dtype.BF16 in formats:
        stored = Dtype.BF16
    host = config.backend in HOST_BACKENDS
    dtype = Dtype.F32 if host else stored
    if config.kv_dtype != "auto":
        return KV_TYPES[config.kv_dtype], dtype, activations
    exact = config.backend == "reference" or (host and activations == "float")
    return Dtype.F32 if exact else stored, dtype, activations


def _pool(backend: Backend, decoder: Decoder, config: EngineConfig, kv_dtype: Dtype) -> PoolSize:
    context = min(config.context_length or decoder.shape.context, decoder.shape.context)
    host = config.backend in HOST_BACKENDS
    return size_pool(
        decoder.shape.cache,
        kv_dtype,
        context=context,
        sequences=config.max_sequences,
        available=available_bytes(backend.memory(), config.kv_memory_fraction, host=host),
    )
