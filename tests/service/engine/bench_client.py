"""What a token costs outside the device, in processor time: `make bench-engine`.

Three parts: the engine's side (schedule, commit, encode) over a device that takes no time, the API
process's side (frames to sinks), and both as processes over the real socket. Compare with a step of
the device: at 8 streams and 2,650 tokens/s one step takes 3 ms, a token 377 µs.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

import uvloop
from engine_child import NEVER, fake_config
from flatwake_service.engine import messages, worker
from flatwake_service.engine.batch import Batch, Result, Sampled
from flatwake_service.engine.client import EngineClient, _Connection
from flatwake_service.engine.config import EngineConfig
from flatwake_service.engine.messages import (
    Device,
    SamplingParams,
    SequenceTokens,
    Started,
    Submit,
    Tokens,
)
from flatwake_service.engine.scheduler import Scheduler

CONTEXT = 2048


class NullRunner:
    """A device whose steps take `seconds` and no processor time: every sampled token is 7."""

    recurrent, graph_replays, graph_captures = False, 0, 0
    device, bandwidth_bytes, model_bytes = Device("null", "none", 0), 1.0, 1
    model_context = CONTEXT

    def __init__(self, slots: int, seconds: float = 0.0) -> None:
        self.context, self.slots, self._seconds = CONTEXT, slots, seconds
        self.vocabulary = 8
        self.blocks = slots * CONTEXT // 16
        self._batch: Batch | None = None

    def take(self, taken: object) -> None: ...

    def launch(self, batch: Batch) -> None:
        self._batch = batch

    def read(self) -> Iterator[Result]:
        batch = self._batch
        assert batch is not None
        if self._seconds:
            time.sleep(self._seconds)
        if batch.decode:
            yield Result(batch.decode, tuple(Sampled(e.sequence, 7) for e in batch.decode))
        for chunk in batch.chunks:
            yield Result((chunk,), (Sampled(chunk.sequence, 7),) if chunk.samples else ())

    def kv_touched_bytes(self) -> int:
        return 0

    def device_bytes(self) -> int:
        return 0


class Counter:
    """A sink that only counts."""

    def __init__(self, over: asyncio.Event | None = None) -> None:
        self.count = 0
        self._over = over

    def started(self) -> None: ...

    def tokens(self, entry: SequenceTokens, stamp: float) -> None:
        self.count += len(entry.ids)
        if entry.finish is not None and self._over is not None:
            self._over.set()

    def failed(self, reason: str, message: str) -> None:
        raise AssertionError(message)


def submit(number: int, tokens: int) -> Submit:
    ids = tuple(range(20))
    return Submit(number, number, ids, SamplingParams(), tokens, NEVER)


def engine_side(streams: int, tokens: int) -> float:
    """µs a token to schedule, commit and encode."""
    runner = NullRunner(streams)
    scheduler = Scheduler(
        blocks=runner.blocks,
        slots=streams,
        context=CONTEXT,
        max_sequences=streams,
        prefill_tokens=512,
    )
    for number in range(streams):
        scheduler.submit(submit(number, tokens))
    began = time.process_time()
    while True:
        scheduler.expire(0.0)
        batch = scheduler.schedule()
        if batch.empty:
            break
        runner.launch(batch)
        for result in runner.read():
            news = scheduler.commit(result)
            frame = Tokens(batch.step, 0.0, tuple(news.entries), tuple(news.started))
            messages.encode(frame)
    return (time.process_time() - began) / (streams * tokens) * 1e6


async def api_side(streams: int, frames: int) -> float:
    """µs a token from the socket's bytes to a sink's call."""
    client = EngineClient()
    connection = _Connection(client)
    client.started = Started(CONTEXT, 1, 1, "none", NullRunner.device, 1.0, 1, CONTEXT)
    sinks = [Counter() for _ in range(streams)]
    client._sinks = dict(enumerate(sinks))  # type: ignore[arg-type]
    entries = tuple(SequenceTokens(number, (1234,)) for number in range(streams))
    data = messages.encode(Tokens(1, 1.0, entries))
    began = time.process_time()
    for _ in range(frames):
        connection.data_received(data)
    took = time.process_time() - began
    assert all(sink.count == frames for sink in sinks)
    return took / (streams * frames) * 1e6


async def both(streams: int, tokens: int, seconds: float) -> tuple[float, float, float]:
    """Tokens a second over the socket, and µs of each process's time a token."""
    command = [sys.executable, __file__, "child", str(seconds)]
    client = await EngineClient.start(
        fake_config(max_sequences=streams, check_invariants=False), command=command
    )
    await client.ready()
    rounds = 4
    began, mine, theirs = time.perf_counter(), time.process_time(), child_seconds(client.pid)
    for turn in range(rounds):
        over = [asyncio.Event() for _ in range(streams)]
        for number, event in enumerate(over):
            client.submit(submit(turn * streams + number, tokens), Counter(event))
        await asyncio.gather(*(event.wait() for event in over))
    seconds = time.perf_counter() - began
    mine, theirs = time.process_time() - mine, child_seconds(client.pid) - theirs
    await client.close()
    total = rounds * streams * tokens
    return total / seconds, mine / total * 1e6, theirs / total * 1e6


def child_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def open_null(config: EngineConfig, progress: worker.Progress, heartbeat: int) -> NullRunner:
    return NullRunner(config.max_sequences, float(sys.argv[2]))


def main() -> None:
    print("µs of processor time a token; 'paced': a step takes the device 3 ms")
    print("streams | engine |  API | sockets: tok/s, API, engine | paced: tok/s, API, engine")
    for streams in (1, 8, 64):
        tokens = min(1900, 40_000 // streams)
        engine = engine_side(streams, tokens)
        api = uvloop.run(api_side(streams, 40_000 // streams))
        flat = uvloop.run(both(streams, tokens, 0.0))
        paced = uvloop.run(both(streams, min(tokens, 300), 0.003))
        print(
            f"{streams:7} | {engine:6.2f} | {api:4.2f}"
            f" | {flat[0]:14,.0f} {flat[1]:5.2f} {flat[2]:7.2f}"
            f" | {paced[0]:12,.0f} {paced[1]:6.2f} {paced[2]:6.2f}",
            flush=True,
        )


if __name__ == "__main__":
    if sys.argv[1:2] == ["child"]:
        sys.exit(worker.main(sys.argv[3:], open_runner=open_null))
    main()
