"""An engine that computes nothing and emits tokens at a set pace: what is above it is measured.

`python -m flatwake_service.bench.stand_in --model … --port …` is a whole server over it; with one
argument, a configuration, it is the engine process itself. Everything but the computing is a
server's own: loop, scheduler, messages, HTTP.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import time
from collections.abc import Awaitable, Iterator, Sequence
from pathlib import Path

import uvloop

from flatwake_service.engine import worker
from flatwake_service.engine.batch import Batch, Chunk, DecodeEntry, Result, Sampled
from flatwake_service.engine.client import EngineClient
from flatwake_service.engine.config import EngineConfig
from flatwake_service.engine.messages import Device, TokenLogprobs
from flatwake_service.engine.sequence import Sequence as Running
from flatwake_service.http import listener, server
from flatwake_service.http.language import Language, load_language
from flatwake_service.http.service import Service
from flatwake_service.http.settings import Settings
from flatwake_service.text import load_tokenizer
from flatwake_service.weights import open_checkpoint

RATE = "FLATWAKE_STAND_IN_RATE"
"""The environment's variable: tokens a second of each sequence."""
COMMAND = (sys.executable, "-m", "flatwake_service.bench.stand_in")
# One token each in practically every vocabulary, so that each gives an event.
_TEXT = " time year people way day man thing woman life child world school state family"


class PacedRunner:
    """A StepRunner: each step ends `1 / rate` seconds after the last one did."""

    recurrent = False
    bandwidth_bytes = 1e9
    model_bytes = 0
    graph_replays = graph_captures = 0
    device = Device("stand-in", "none", 0)

    def __init__(
        self, rate: float, ids: Sequence[int], context: int, slots: int, vocabulary: int
    ) -> None:
        self.context, self.slots, self.vocabulary = context, slots, vocabulary
        self.model_context = context
        self.blocks = slots * context
        self._pause, self._ids = 1 / rate, list(ids)
        self._due = 0.0
        self._batch: Batch | None = None

    def take(self, taken: Running) -> None: ...

    def launch(self, batch: Batch) -> None:
        self._batch = batch

    def read(self) -> Iterator[Result]:
        batch, self._batch = self._batch, None
        assert batch is not None
        now = time.monotonic()
        # One that came late isn't made up for: a device isn't faster after a pause either.
        self._due = max(self._due + self._pause, now)
        time.sleep(self._due - now)
        if batch.decode:
            yield Result(batch.decode, tuple(map(self._choose, batch.decode)), self._pause)
        for chunk in batch.chunks:
            yield Result((chunk,), (self._choose(chunk),) if chunk.samples else (), self._pause)

    def _choose(self, entry: DecodeEntry | Chunk) -> Sampled:
        chosen = self._ids[(entry.start + entry.count) % len(self._ids)]
        wanted = entry.sequence.sampling.logprobs
        sure = TokenLogprobs(0.0, (chosen,) * min(wanted, 1), (0.0,) * min(wanted, 1))
        return Sampled(entry.sequence, chosen, sure if wanted >= 0 else None)

    def kv_touched_bytes(self) -> int:
        return 0

    def device_bytes(self) -> int:
        return 0


def open_paced(config: EngineConfig, progress: worker.Progress, heartbeat: int) -> PacedRunner:
    ids = load_tokenizer(open_checkpoint(Path(config.model))).encode(_TEXT, add_special=False)
    context = config.context_length or 2048
    size = config.vocabulary or max(ids) + 1
    return PacedRunner(float(os.environ[RATE]), ids, context, config.max_sequences, size)


def serve(model: Path, port: int, trace_stamps: bool) -> int:
    """A server over a paced engine until a signal drains it; its exit code."""
    settings = Settings("stand-in", str(model), port=port, trace_stamps=trace_stamps)

    async def start(language: Awaitable[Language]) -> EngineClient:
        size = (await language).tokenizer.size
        config = EngineConfig(model=str(model), backend="reference", vocabulary=size)
        return await EngineClient.start(config, command=COMMAND)

    async def run() -> int:
        language = asyncio.create_task(asyncio.to_thread(load_language, model, None))
        return await server.run(Service(settings), bound, language, start(language))

    bound = listener.bind("127.0.0.1", port)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(run())


def main() -> int:
    if len(sys.argv) == 2:
        return worker.main(open_runner=open_paced)
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--trace-stamps", action="store_true")
    return serve(**vars(parser.parse_args()))


if __name__ == "__main__":
    sys.exit(main())
