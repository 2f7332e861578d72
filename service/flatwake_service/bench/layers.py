"""What the layers above the runner cost: the same tokens through each of them.

A  the runner at a fixed batch, without a scheduler
B  the engine process through its messages, with detokenising and JSON
C  a whole server, over sockets
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import httpx
import uvloop

from flatwake_service.bench import sockets
from flatwake_service.bench.cores import ANYWHERE, Cores
from flatwake_service.engine import drive
from flatwake_service.engine.client import EngineClient
from flatwake_service.engine.config import EngineConfig
from flatwake_service.engine.messages import SamplingParams, SequenceTokens, Submit
from flatwake_service.engine.runner import Runner
from flatwake_service.engine.speed import measure_prefill
from flatwake_service.http.events import CompletionEvents
from flatwake_service.text import Detokenizer, Tokenizer

FOREVER = 1e9
PATIENCE = 600.0


@dataclass(frozen=True)
class Speed:
    """Tokens a second of all users together, while all of them decode. `first`: seconds from the
    request to the first token of the last user; None where there is no request. `processor`:
    processor seconds of the API process a token. `delays`: seconds from a token's reading by the
    engine to its arrival at the client, of each token, where the server stamps them.
    """

    decode: float
    first: float | None = None
    bytes_a_second: float | None = None
    processor: float | None = None
    delays: tuple[float, ...] = ()


class Layer(Protocol):
    def measure(self, users: int, tokens: int) -> Speed: ...

    def close(self) -> None: ...


def together(times: Sequence[Sequence[float]], tokens: int | None = None) -> float:
    """Tokens a second in the window in which every stream decodes: from the last one's first
    token to the first one's last.

    `tokens`: how many each stream had, if a moment may stand for several or for none, as events of
    a server do: bytes of an unfinished character wait for the rest, and an end has an event.
    """
    start, end = max(t[0] for t in times), min(t[-1] for t in times)
    if start >= end:
        # So few tokens that no moment had them all: the whole span, which says less than it could.
        start, end = min(t[0] for t in times), max(t[-1] for t in times)
    inside = 0.0
    for stream in times:
        weight = 1.0 if tokens is None or len(stream) < 2 else (tokens - 1) / (len(stream) - 1)
        inside += weight * sum(start < moment <= end for moment in stream)
    return inside / (end - start)


class PaceLayer:
    """A of a stand-in: what it emits by itself, tokens a second of each user."""

    def __init__(self, rate: float) -> None:
        self._rate = rate

    def close(self) -> None: ...

    def measure(self, users: int, tokens: int) -> Speed:
        return Speed(users * self._rate)


class RunnerLayer:
    """A. `prompt` is every user's."""

    def __init__(self, runner: Runner, prompt: Sequence[int], cores: Cores = ANYWHERE) -> None:
        self._runner = runner
        self._prompt = list(prompt)
        self._cores = cores
        self.context = runner.context

    def close(self) -> None:
        self._runner.close()

    def measure(self, users: int, tokens: int) -> Speed:
        with self._cores.as_engine():
            return self._measure(users, tokens)

    def _measure(self, users: int, tokens: int) -> Speed:
        sequences = drive.place(self._runner, [self._prompt] * users, tokens)
        for sequence in sequences:
            drive.follow(drive.prefill(self._runner, sequence))
        moved = 0
        began = time.perf_counter()
        for _ in range(tokens - 1):
            results = drive.decode(self._runner, sequences)
            drive.follow(results)
            moved += sum(result.bytes for result in results)
        spent = time.perf_counter() - began
        return Speed(users * (tokens - 1) / spent, bytes_a_second=moved / spent)

    def prefill_speed(self, tokens: int) -> float:
        """Prompt tokens a second of one prompt of this length."""
        return measure_prefill(self._runner, tokens, 1).tokens_per_second


class _Sink:
    """Turns tokens into events, as a stream does, and drops them."""

    def __init__(self, tokenizer: Tokenizer, ended: Callable[[], None]) -> None:
        self._detokenizer = Detokenizer(tokenizer)
        self._events = CompletionEvents(
            "cmpl-0", 0, "bench", echoes=[""], usage=False, top=-1, tokenizer=tokenizer
        )
        self._ended = ended
        self.times: list[float] = []
        self.delays: list[float] = []
        self.failure: str | None = None

    def started(self) -> None: ...

    def tokens(self, entry: SequenceTokens, stamp: float) -> None:
        self._events.text(0, self._detokenizer.push(entry.ids), ())
        now = time.monotonic()
        self.times += [now] * len(entry.ids)
        self.delays += [now - stamp] * len(entry.ids)
        if entry.finish is not None:
            self._ended()

    def failed(self, reason: str, message: str) -> None:
        self.failure = f"{reason}: {message}"
        self._ended()


class EngineLayer:
    """B. One engine child for all measurements; `command` as in `EngineClient.start`."""

    def __init__(
        self,
        config: EngineConfig,
        prompt: Sequence[int],
        tokenizer: Tokenizer,
        cores: Cores = ANYWHERE,
        command: Sequence[str] | None = None,
    ) -> None:
        self._prompt = tuple(prompt)
        self._tokenizer = tokenizer
        self._loop = asyncio.Runner(loop_factory=uvloop.new_event_loop)
        self._numbers = iter(range(1, 1 << 30))
        with cores.as_engine():
            self._client = self._loop.run(self._start(config, command))

    async def _start(self, config: EngineConfig, command: Sequence[str] | None) -> EngineClient:
        client = await EngineClient.start(config, command=command)
        await client.ready()
        return client

    def close(self) -> None:
        self._loop.run(self._client.close())
        self._loop.close()

    def measure(self, users: int, tokens: int) -> Speed:
        return self._loop.run(self._measure(users, tokens))

    async def _measure(self, users: int, tokens: int) -> Speed:
        left, done = users, asyncio.Event()

        def ended() -> None:
            nonlocal left
            left -= 1
            if not left:
                done.set()

        sinks = [_Sink(self._tokenizer, ended) for _ in range(users)]
        began, processor = time.monotonic(), time.process_time()
        for sink in sinks:
            number = next(self._numbers)
            message = Submit(number, number, self._prompt, SamplingParams(), tokens, FOREVER)
            self._client.submit(message, sink)
        await done.wait()
        for sink in sinks:
            if sink.failure is not None:
                raise ConnectionError(sink.failure)
        first = max(sink.times[0] for sink in sinks) - began
        return Speed(
            together([sink.times for sink in sinks]),
            first,
            processor=(time.process_time() - processor) / (users * tokens),
            delays=tuple(delay for sink in sinks for delay in sink.delays),
        )


class ServerLayer:
    """C. A server of its own, started by its own command."""

    def __init__(
        self,
        command: Sequence[str],
        options: Mapping[str, str],
        prompt: Sequence[int],
        cores: Cores = ANYWHERE,
        *,
        stamps: bool = False,
    ) -> None:
        self._prompt = list(prompt)
        port = _free_port()
        self._url = f"http://127.0.0.1:{port}/v1"
        words = [word for pair in {**options, "--port": str(port)}.items() for word in pair]
        with cores.as_engine():
            self._process = subprocess.Popen(
                [*command, *words, *(["--trace-stamps"] if stamps else [])],
                stderr=subprocess.DEVNULL,
            )
        self._wait()
        cores.as_other(self._process.pid)

    def _wait(self) -> None:
        end = time.monotonic() + PATIENCE
        root = self._url.removesuffix("/v1")
        while time.monotonic() < end and self._process.poll() is None:
            with contextlib.suppress(httpx.TransportError):
                if httpx.get(f"{root}/ready").status_code == 200:
                    return
            time.sleep(0.1)
        self.close()
        raise ConnectionError("the server to be measured didn't become ready")

    def close(self) -> None:
        # Unlike SIGTERM's, this drain waits for no endpoints.
        self._process.send_signal(signal.SIGINT)
        self._process.wait()

    def measure(self, users: int, tokens: int) -> Speed:
        before = self._processor()
        streams, began = sockets.complete(self._url, [self._prompt] * users, tokens)
        times = [stream.times for stream in streams]
        return Speed(
            together(times, tokens),
            max(t[0] for t in times) - began,
            processor=(self._processor() - before) / (users * tokens),
            delays=tuple(delay for stream in streams for delay in stream.delays),
        )

    def _processor(self) -> float:
        """Seconds that the API process has used so far, in user and kernel mode."""
        stat = Path(f"/proc/{self._process.pid}/stat").read_text()
        user, system = stat.rpartition(")")[2].split()[11:13]
        return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


def serve_command(config: EngineConfig) -> tuple[list[str], dict[str, str]]:
    """The command of a server with this engine, and its options."""
    return [sys.executable, "-m", "flatwake_service.cli.main", "serve"], {
        "--model": config.model,
        "--host": "127.0.0.1",
        "--backend": config.backend,
        "--activations": config.activations,
        "--graphs": config.graphs,
        "--max-sequences": str(config.max_sequences),
        "--context-length": str(config.context_length),
    }


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
    return port


def prompt_ids(tokenizer: Tokenizer, count: int = 60) -> list[int]:
    """The same prompt for every layer and user."""
    text = Path(__file__).read_text()
    return tokenizer.encode(text, add_special=True)[:count]
