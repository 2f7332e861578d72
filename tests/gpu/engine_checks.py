"""What a served GPU engine must hold: `python engine_checks.py MODEL_FOLDER --json FILE`.

A full context ends with "length"; somebody who joins running streams waits for no more than two
steps and the own prompt; memory stays flat over replays and over requests with preemption.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import cast

import msgspec
from flatwake_kernels.backends import BackendName
from flatwake_service.engine import drive
from flatwake_service.engine.client import EngineClient
from flatwake_service.engine.config import EngineConfig
from flatwake_service.engine.messages import SamplingParams, SequenceTokens, Submit
from flatwake_service.engine.runner import open_runner

FOREVER = 1e9
PAST = 14_080
"""A published split-KV kernel stops here: its LDS grows with the context."""


def prompt(length: int, index: int = 0) -> tuple[int, ...]:
    return tuple((7 * i + 13 * index) % 250 for i in range(length))


class Sink:
    """The moments of a sequence's tokens, and how it ended."""

    def __init__(self, ended: Callable[[], None]) -> None:
        self._ended = ended
        self.times: list[float] = []
        self.finish: str | None = None

    def started(self) -> None: ...

    def tokens(self, entry: SequenceTokens, stamp: float) -> None:
        self.times += [time.perf_counter()] * len(entry.ids)
        if entry.finish is not None:
            self.finish = entry.finish
            self._ended()

    def failed(self, reason: str, message: str) -> None:
        self.finish = f"{reason}: {message}"
        self._ended()


class Engine:
    """An engine child, driven by its messages."""

    def __init__(self, client: EngineClient) -> None:
        self.client = client
        self._number = 0

    def submit(self, ids: tuple[int, ...], tokens: int) -> tuple[Sink, asyncio.Event]:
        done = asyncio.Event()
        sink = Sink(done.set)
        self._number += 1
        message = Submit(self._number, self._number, ids, SamplingParams(), tokens, FOREVER)
        self.client.submit(message, sink)
        return sink, done


async def full_context(config: EngineConfig) -> dict[str, object]:
    """A prompt beyond PAST and decode to the context's end."""
    client = await EngineClient.start(config)
    await client.ready()
    engine, context = Engine(client), config.context_length or 0
    assert context > PAST, "the context is to pass what stops others"
    length = context - 40
    sink, done = engine.submit(prompt(length), 1000)
    await asyncio.wait_for(done.wait(), 120)
    await client.close()
    return {
        "context": context, "prompt": length, "tokens": len(sink.times), "finish": sink.finish,
        "right": sink.finish == "length" and len(sink.times) == context - length,
    }  # fmt: skip


async def join(config: EngineConfig, rounds: int) -> dict[str, object]:
    """A user with a prompt of 500 tokens joins three streams."""
    client = await EngineClient.start(config)
    await client.ready()
    engine = Engine(client)
    ids = prompt(500, 3)
    alone = []
    for _ in range(rounds):
        began = time.perf_counter()
        sink, done = engine.submit(ids, 2)
        await done.wait()
        alone.append(sink.times[0] - began)
    firsts, steps = [], []
    gaps: list[tuple[float, float]] = []  # each stream's longest, and when it began after the join
    for number in range(rounds):
        streams = [engine.submit(prompt(60, index), 400) for index in range(3)]
        while any(len(sink.times) < 60 for sink, _ in streams):
            await asyncio.sleep(0.001)
        began = time.perf_counter() + 0.0003 * number  # at another moment of a step each time
        while time.perf_counter() < began:
            pass
        began = time.perf_counter()
        sink, done = engine.submit(ids, 20)
        await done.wait()
        firsts.append(sink.times[0] - began)
        for other, ended in streams:
            await ended.wait()
            between = [(b - a, a - began) for a, b in pairwise(other.times)]
            steps.append(statistics.median(gap for gap, _ in between))
            gaps.append(max(between))
    await client.close()
    step, own = statistics.median(steps), statistics.median(alone)
    first = statistics.median(firsts)
    return {
        "join_ttft_ms": first * 1e3,
        "own_prefill_ms": own * 1e3,
        "decode_step_ms": step * 1e3,
        "allowed_ms": (2 * step + own) * 1e3 + 3,
        "longest_gap_ms": max(gaps)[0] * 1e3,
        "longest_gap_began_ms": max(gaps)[1] * 1e3,
        "usual_gap_ms": statistics.median(gap for gap, _ in gaps) * 1e3,
        "allowed_gap_ms": (own + step) * 1e3,
    }


def free_bytes() -> float:
    """Of the device once a model of 2.5 GB is there."""
    asked = subprocess.run(
        ["nvidia-smi", "--query-gpu=memory.free", "--format=csv,noheader,nounits"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    return float(asked.stdout.split()[0]) * (1 << 20) - 2.5e9


def resident() -> int:
    """Bytes of this process in memory."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def replays(config: EngineConfig, steps: int) -> dict[str, object]:
    """Memory before and after so many captured steps of four sequences."""
    runner = open_runner(config, lambda *_: None)
    sequences = drive.place(runner, [prompt(60, i) for i in range(4)], steps + 101)
    for sequence in sequences:
        drive.follow(drive.prefill(runner, sequence))
    for _ in range(100):
        drive.follow(drive.decode(runner, sequences))
    before = runner.backend.memory().free, resident()
    for _ in range(steps):
        drive.follow(drive.decode(runner, sequences))
    after = runner.backend.memory().free, resident()
    runner.close()
    return {
        "replays": steps,
        "device_bytes_lost": before[0] - after[0],
        "host_bytes_grown": after[1] - before[1],
    }


async def requests(config: EngineConfig, count: int) -> dict[str, object]:
    """`count` requests, more at a time than the pool holds, so that some are preempted."""
    client = await EngineClient.start(config)
    await client.ready()
    engine = Engine(client)
    pid = client.pid

    def engine_resident() -> int:
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")

    sizes, finishes = [], []
    for first in range(0, count, 20):
        batch = [engine.submit(prompt(300 + 7 * i, first + i), 200) for i in range(20)]
        for sink, done in batch:
            await done.wait()
            finishes.append(sink.finish)
        sizes.append(engine_resident())
    await asyncio.sleep(1.5)  # until the last values have been told
    stats = client.stats
    await client.close()
    quarter = len(sizes) // 4
    return {
        "requests": len(finishes),
        "finishes": {str(f): finishes.count(f) for f in set(finishes)},
        "preemptions": stats.preemptions if stats else None,
        "device_bytes": stats.device_bytes if stats else None,
        "host_bytes_grown_after_the_first_quarter": sizes[-1] - sizes[quarter],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", type=Path)
    parser.add_argument("--backend", default="cuda")
    parser.add_argument("--kv-bytes", type=float, default=222e6, help="for the preemptions")
    parser.add_argument("--kv-fraction", type=float, help="likewise, of free memory")
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--requests", type=int, default=500)
    parser.add_argument("--context", type=int, default=16384, help="of the full context's check")
    parser.add_argument("--only", nargs="*", default=["context", "join", "replays", "requests"])
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    backend, model = cast(BackendName, options.backend), str(options.model)
    found: dict[str, object] = {}

    def note(name: str, figures: dict[str, object]) -> None:
        found[name] = figures
        print(name, figures, flush=True)
        if options.json:
            options.json.write_text(json.dumps(found, indent=1) + "\n")

    short = EngineConfig(model=model, backend=backend, context_length=4096, look_ahead="auto")
    if "context" in options.only:
        config = msgspec.structs.replace(short, context_length=options.context)
        note("full_context", asyncio.run(full_context(config)))
    if "join" in options.only:
        note("join", asyncio.run(join(short, 10)))
    if "replays" in options.only:
        note("replays", replays(short, options.steps))
    if "requests" in options.only:
        small = msgspec.structs.replace(
            short,
            context_length=1024,
            kv_memory_fraction=options.kv_fraction or options.kv_bytes / free_bytes(),
        )
        note("requests", asyncio.run(requests(small, options.requests)))


if __name__ == "__main__":
    main()
