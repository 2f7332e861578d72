"""Runs batches on one device: uploads what a step needs, launches its plans, reads its tokens."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import msgspec
import numpy as np
from flatwake_kernels.backend import Backend
from flatwake_kernels.backends import open_backend
from flatwake_kernels.dtype import Dtype
from flatwake_kernels.ops import BLOCK_TOKENS
from flatwake_kernels.plan import Plan
from numpy.typing import NDArray

from flatwake_service.engine.arrays import Downloaded, Inputs, Outputs, Span
from flatwake_service.engine.bandwidth import measure_bandwidth
from flatwake_service.engine.batch import Batch, Chunk, DecodeEntry, Result, Sampled
from flatwake_service.engine.config import EngineConfig
from flatwake_service.engine.graphs import GRAPH_BACKENDS, wants_graph
from flatwake_service.engine.interface import row_buckets
from flatwake_service.engine.launched import (
    DeviceRow,
    Launched,
    after,
    continues,
    may_go_on,
    rows_after,
)
from flatwake_service.engine.messages import Device as MessageDevice
from flatwake_service.engine.numerics import numerics
from flatwake_service.engine.plans import Plans, Port, chunk_buckets
from flatwake_service.engine.pool import free_bytes, pool_share, size_pool
from flatwake_service.engine.sampler import Sampler, read_logprobs
from flatwake_service.engine.sequence import Sequence
from flatwake_service.models.cache import Cache
from flatwake_service.models.decoder import Decoder
from flatwake_service.models.load import Loader
from flatwake_service.models.registry import build_decoder
from flatwake_service.models.workspace import Workspace
from flatwake_service.weights import open_checkpoint

Progress = Callable[[str, int, int], None]
"""Called with a phase (loading: bytes, warming: plans), what is done, and all of it."""


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
        free, before = free_bytes(backend, config), backend.memory().allocated
        context = min(config.context_length or decoder.shape.context, decoder.shape.context)
        self.vocabulary = decoder.shape.vocabulary
        live = min(config.vocabulary or self.vocabulary, self.vocabulary)
        self._sampler = Sampler(backend, self.slots, self.vocabulary, live)
        self._decode, self._prefill = _ports(backend, config, context)
        space = self._workspace()
        # The pool is what is left after all else, of which the rope's table comes with the cache.
        others = backend.memory().allocated - before + decoder.shape.rope.table_bytes(context)
        pool = size_pool(
            decoder.shape.cache,
            kv_dtype,
            context=context,
            sequences=config.max_sequences,
            available=pool_share(free - others, config),
        )
        self.context, self.blocks = pool.context, pool.blocks
        if pool.context < context:
            self._decode, self._prefill = _ports(backend, config, pool.context)
        self._cache = self._bind(pool.blocks + 1, self.slots + 1, pool.context)
        self.plans = self._record(space)
        self._event = backend.event()
        self._decode_events = [backend.event(), backend.event()]
        self.device = MessageDevice(
            backend.device.name, backend.device.architecture, backend.device.memory_bytes
        )
        self.bandwidth_bytes = measure_bandwidth(backend)
        self.model_bytes = decoder.file_bytes
        self.model_context = decoder.shape.context
        self.graph_replays = 0
        self.graph_captures = 0
        self.steps_ahead = 0
        self._policy = config.graphs
        self._captured: set[int] = set()
        self._looks_ahead = config.look_ahead == "on" or (
            config.look_ahead == "auto" and backend.name in GRAPH_BACKENDS
        )
        self._batch: Batch | None = None
        self._rows: list[DeviceRow] = []
        self._step: Launched | None = None
        self._ahead: Launched | None = None
        self._done = 0.0
        self._touched: set[int] = set()

    def _bind(self, blocks: int, slots: int, context: int) -> Cache:
        shape = self.decoder.shape.cache
        cache = Cache(self.backend, shape, self.kv_dtype, blocks, slots)
        self.decoder.bind(cache, context)
        return cache

    def _record(self, space: Workspace) -> Plans:
        ports = self._decode, self._prefill
        return Plans(self.backend, self.decoder, self._sampler, *ports, space)

    def _workspace(self) -> Workspace:
        """All activations. What a model needs is known once its plans have been recorded, here
        over a cache of nothing, and thrown away.
        """
        space = Workspace(self.backend)
        self._bind(1, 1, BLOCK_TOKENS)
        self._record(space)
        return space

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
        assert self._ahead is None, "they are the next step's already: don't look ahead"
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
        step, self._ahead = self._ahead, None
        if not batch.decode or (step is not None and not step.serves(batch.decode)):
            step = None
        if batch.decode and step is None:
            spans = [Span(e.sequence, e.start, e.count, e.samples) for e in batch.decode]
            if not continues(self._rows, spans):
                self._start(self._decode, spans)
            step = self._launch_decode(batch.decode)
        self._step = step
        if step is not None and not batch.chunks and self._goes_on(step, batch.decode):
            self._look_ahead(step)

    def read(self) -> Iterator[Result]:
        batch, self._batch = self._batch, None
        assert batch is not None, "launch comes first"
        step, self._step = self._step, None
        if step is not None:
            moved = self._moved(step.entries)
            step.event.wait()
            yield self._result(step.entries, step.found, step.began, moved)
            self._rows = rows_after(step, self._decode.inputs.table)
        for chunk in batch.chunks:
            began = time.monotonic()
            self._start(
                self._prefill, [Span(chunk.sequence, chunk.start, chunk.count, chunk.samples)]
            )
            bucket = next(n for n in chunk_buckets(self._prefill.rows) if n >= chunk.count)
            self._run(self.plans.chunk[bucket])
            if chunk.samples:
                self._run(self.plans.head)
            found = self._prefill.outputs.download()
            self._event.record()
            moved = self._moved((chunk,))
            self._event.wait()
            yield self._result((chunk,), found, began, moved)

    def kv_touched_bytes(self) -> int:
        return len(self._touched) * self.decoder.shape.cache.block_bytes(self.kv_dtype)

    def device_bytes(self) -> int:
        return self.backend.memory().allocated

    def close(self) -> None:
        self.backend.close()

    def _launch_decode(self, entries: tuple[DecodeEntry, ...]) -> Launched:
        began = time.monotonic()
        rows = sum(entry.count for entry in entries)
        self._run(self.plans.decode[next(n for n in row_buckets(self.slots) if n >= rows)])
        found = self._decode.outputs.download()
        event = self._decode_events[found.side]
        event.record()
        return Launched(entries, found, event, began)

    def _goes_on(self, step: Launched, entries: tuple[DecodeEntry, ...]) -> bool:
        return (
            self._looks_ahead
            and len(entries) == len(step.entries)
            and may_go_on(entries, self.context)
        )

    def _look_ahead(self, step: Launched) -> None:
        entries, inputs = after(step.entries), self._decode.inputs
        if any(inputs.table(i) != e.sequence.blocks for i, e in enumerate(entries)):
            inputs.upload_tables([entry.sequence for entry in entries])
        self._touch((e.sequence, e.start, 1) for e in entries)
        self._ahead = self._launch_decode(entries)
        self.steps_ahead += 1

    def _run(self, plan: Plan) -> None:
        plan.run()
        self.graph_replays += id(plan) in self._captured

    def _start(self, port: Port, spans: list[Span]) -> None:
        self._touch((span.sequence, span.start, span.count) for span in spans)
        port.inputs.fill(spans)
        port.inputs.upload()

    def _touch(self, rows: Iterable[tuple[Sequence, int, int]]) -> None:
        for sequence, start, count in rows:
            first, last = start // BLOCK_TOKENS, (start + count - 1) // BLOCK_TOKENS
            self._touched.update(sequence.blocks[first : last + 1])

    def _result(
        self,
        entries: tuple[DecodeEntry | Chunk, ...],
        found: Downloaded,
        began: float,
        moved: int,
    ) -> Result:
        """A part that is done. What was launched early began when the part before it ended."""
        sampled = [
            Sampled(
                entry.sequence,
                number,
                read_logprobs(found, index, entry.sequence.sampling.logprobs),
            )
            for index, (entry, number) in enumerate(
                zip(entries, found.next_ids(len(entries)), strict=True)
            )
            if entry.samples
        ]
        now = time.monotonic()
        seconds, self._done = now - max(began, self._done), now
        return Result(entries, tuple(sampled), seconds, moved)

    def _moved(self, entries: tuple[DecodeEntry | Chunk, ...]) -> int:
        """Bytes that the part had to move: weights once, KV read and written, state both ways."""
        shape = self.decoder.shape.cache
        position = shape.block_bytes(self.kv_dtype) // BLOCK_TOKENS
        total = self.decoder.step_bytes
        for entry in entries:
            seen = entry.start + entry.count
            total += position * (seen + entry.count) + 2 * shape.slot_bytes
        return total


def _ports(backend: Backend, config: EngineConfig, context: int) -> tuple[Port, Port]:
    """Of decode steps and of chunks; each sequence's table holds a whole context."""
    table = -(-context // BLOCK_TOKENS)
    most, chunk = row_buckets(config.max_sequences)[-1], chunk_buckets(config.prefill_tokens)[-1]
    decode = Inputs(backend, most, most, table), Outputs(backend, most)
    prefill = Inputs(backend, chunk, 1, table), Outputs(backend, 1)
    return Port(*decode, most, config.max_sequences), Port(*prefill, chunk, 1)


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
    kv_dtype, dtype, activations = numerics(config, checkpoint)
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
