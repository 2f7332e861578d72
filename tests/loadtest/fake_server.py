"""An OpenAI-compatible server that is wrong on demand: what the load suite is tested against.

It emits deterministic tokens at a set rate, exports Flatwake's metrics, and can leak, drop
streams, miscount, mix up answers or answer differently under load. Plain asyncio; it prints its
port as JSON and runs until it is killed.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import hashlib
import json
import os
import re
import socket
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

NAMES = ["amber", "birch", "cedar", "delta", "ember", "flint", "grove", "haven", "ivory", "jade"]
CODEWORD = re.compile(r"\b([A-Z]{4,}-\d+)\b")


class Gone(Exception):
    """The client went away."""


@dataclass
class Fake:
    options: argparse.Namespace
    running: int = 0
    waiting: int = 0
    counted: Counter[str] = field(default_factory=Counter)
    outcomes: Counter[str] = field(default_factory=Counter)
    sums: Counter[str] = field(default_factory=Counter)
    codewords: dict[int, str] = field(default_factory=dict)
    hoard: list[bytearray] = field(default_factory=list)
    engine: asyncio.subprocess.Process | None = None
    dead: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self.slots = asyncio.Semaphore(self.options.slots)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError, Gone):
            while line := await reader.readline():
                arrived = time.monotonic() - unread(writer)
                method, path, _ = line.decode().split()
                headers = {}
                while (header := (await reader.readline()).strip()) != b"":
                    name, _, value = header.decode().partition(":")
                    headers[name.lower()] = value.strip()
                body = await reader.readexactly(int(headers.get("content-length", 0)))
                await self.route(method, path, body, arrived, reader, writer)
        writer.close()

    async def route(
        self,
        method: str,
        path: str,
        body: bytes,
        arrived: float,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        if path == "/metrics":
            await plain(writer, 200, self.metrics(), "text/plain")
        elif path == "/status":
            await plain(writer, 200, json.dumps(self.status()))
        elif path == "/ready":
            await plain(writer, 503 if self.dead.is_set() else 200, "{}")
        elif path == "/v1/models":
            await plain(writer, 200, json.dumps({"data": [{"id": "fake"}]}))
        elif (method, path) == ("POST", "/v1/chat/completions"):
            await self.chat(body, arrived, reader, writer)
        else:
            await plain(writer, 404, json.dumps({"error": {"message": f"no {path}"}}))

    async def keep_engine(self) -> None:
        """A child that does nothing; when it ends so does the server, as ours does. One that stands
        still is killed.
        """
        self.engine = await asyncio.create_subprocess_exec("sleep", "infinity")
        ended = asyncio.ensure_future(self.engine.wait())
        while not ended.done():
            await asyncio.wait({ended}, timeout=0.2)
            if not ended.done() and stopped(self.engine.pid):
                self.engine.kill()
        self.dead.set()
        await asyncio.sleep(0.5)

    async def chat(
        self,
        raw: bytes,
        arrived: float,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        try:
            body = json.loads(raw)
            prompt = " ".join(message["content"] for message in body["messages"])
        except (ValueError, KeyError, TypeError):
            self.outcomes["rejected"] += 1
            await plain(writer, 400, json.dumps({"error": {"message": "malformed body"}}))
            return
        if len(prompt.split()) + 8 > self.options.context:
            self.outcomes["rejected"] += 1
            message = f"maximum context length is {self.options.context} tokens"
            await plain(writer, 400, json.dumps({"error": {"message": message}}))
            return
        if self.waiting >= self.options.queue and self.slots.locked():
            self.outcomes["rejected"] += 1
            retry = {} if self.options.no_retry_after else {"Retry-After": "1"}
            error = json.dumps({"error": {"message": "the queue is full", "code": "queue_full"}})
            await plain(writer, 429, error, extra=retry)
            return
        self.hoard.append(bytearray(os.urandom(self.options.leak)))
        watch = asyncio.ensure_future(reader.read(1))
        try:
            await self.admit(body, prompt, arrived, watch, writer)
        except (Gone, ConnectionError):
            self.outcomes["cancelled"] += 1
            raise
        finally:
            watch.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await watch

    async def admit(
        self,
        body: dict[str, object],
        prompt: str,
        arrived: float,
        watch: asyncio.Future[bytes],
        writer: asyncio.StreamWriter,
    ) -> None:
        self.waiting += 1
        turn = asyncio.ensure_future(self.slots.acquire())
        await asyncio.wait({turn, watch}, return_when=asyncio.FIRST_COMPLETED)
        self.waiting -= 1
        if watch.done():
            if not turn.cancel():
                self.slots.release()
            raise Gone
        self.running += 1
        key = id(writer)
        if found := CODEWORD.search(prompt):
            self.codewords[key] = found.group(1)
        try:
            await self.stream(body, prompt, arrived, watch, writer)
        finally:
            self.codewords.pop(key, None)
            self.running -= 1
            if not self.options.leak_slots:
                self.slots.release()

    async def stream(
        self,
        body: dict[str, object],
        prompt: str,
        arrived: float,
        watch: asyncio.Future[bytes],
        writer: asyncio.StreamWriter,
    ) -> None:
        head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
        writer.write(f"{head}Transfer-Encoding: chunked\r\n\r\n".encode())
        limit = int(str(body.get("max_tokens", 16)))
        prompt_tokens = len(prompt.split()) + 8
        self.counted["prompt"] += prompt_tokens
        await asyncio.sleep(self.options.prefill * prompt_tokens)
        send(writer, {"choices": [{"delta": {"role": "assistant"}, "finish_reason": None}]})
        begin = last = time.monotonic()
        for index in range(limit):
            due = begin + index * self.pace()
            await asyncio.wait({watch}, timeout=max(0.0, due - time.monotonic()))
            if watch.done():
                raise Gone
            if self.dead.is_set():
                self.outcomes["error"] += 1
                if not self.options.silent_death:
                    send(
                        writer, {"error": {"message": "the engine ended", "code": "engine_failed"}}
                    )
                writer.write(b"0\r\n\r\n")
                await writer.drain()
                return
            if self.options.stamps:
                chunk(writer, b": stamp %.6f\n\n" % (time.monotonic() - 0.005))
            self.counted["generated"] += 1
            self.counted["reported"] += 1
            if self.options.drop and self.counted["generated"] % self.options.drop == 0:
                self.outcomes["error"] += 1
                writer.close()
                return
            choice: dict[str, object] = {"delta": {"content": self.word(prompt, index)}}
            if body.get("logprobs"):
                choice["logprobs"] = {"content": [{"token": "x", "logprob": 0.0}]}
            send(writer, {"choices": [choice | {"finish_reason": None}]})
            await writer.drain()
            last = self.measure(index, arrived, last)
        self.outcomes["length"] += 2 if self.options.miscount else 1
        send(writer, {"choices": [{"delta": {}, "finish_reason": "length"}]})
        usage = {"prompt_tokens": prompt_tokens, "completion_tokens": limit}
        send(writer, {"choices": [], "usage": usage})
        chunk(writer, b"data: [DONE]\n\n")
        writer.write(b"0\r\n\r\n")
        await writer.drain()

    def pace(self) -> float:
        """Seconds a token: with more streams each is a little slower."""
        slower = 1 + self.options.contention * (self.running - 1)
        return slower / self.options.rate

    def measure(self, index: int, arrived: float, last: float) -> float:
        """A token has left: now."""
        now = time.monotonic()
        if index == 0:
            self.sums["time_to_first_token_seconds"] += now - arrived
            self.counted["time_to_first_token_seconds"] += 1
        else:
            self.sums["inter_token_seconds"] += (now - last) * self.options.histogram_factor
            self.counted["inter_token_seconds"] += 1
        return now

    def word(self, prompt: str, index: int) -> str:
        salt = str(self.running) if self.options.wrong_under_load else ""
        if index == 0 and (found := CODEWORD.search(prompt)):
            others = [word for word in self.codewords.values() if word != found.group(1)]
            return (others[0] if self.options.cross and others else found.group(1)) + " "
        digest = hashlib.sha256(f"{prompt}{salt}{index}".encode()).digest()
        return NAMES[digest[0] % len(NAMES)] + " "

    def status(self) -> dict[str, object]:
        pid = None if self.options.no_metrics else os.getpid()
        return {
            "phase": "ready",
            "model": {"name": "fake"},
            "context": self.options.context,
            "max_sequences": self.options.slots,
            "pids": {self.options.process: pid} | self.engine_pid(),
            "version": "fake",
        }

    def engine_pid(self) -> dict[str, int]:
        return {"engine": self.engine.pid} if self.engine else {}

    def metrics(self) -> str:
        if self.options.no_metrics:
            return ""
        lines = [f'requests_total{{outcome="{k}"}} {v}' for k, v in self.outcomes.items()]
        lines += [f"requests_running {self.running}", f"requests_waiting {self.waiting}"]
        lines += [f"requests_in_flight {self.running + self.waiting}"]
        lines += [f"{name}_tokens_total {self.counted[name]}" for name in ("prompt", "generated")]
        lines += [f"reported_tokens_total {self.counted['reported']}", "discarded_tokens_total 0"]
        for name in ("time_to_first_token_seconds", "inter_token_seconds"):
            lines += [f"{name}_sum {self.sums[name]}", f"{name}_count {self.counted[name]}"]
        held = self.options.slots - self.slots._value
        lines += [f'kv_blocks{{state="used"}} {held * 4}', f'state_slots{{state="used"}} {held}']
        other = "api" if self.options.process == "engine" else "engine"
        kinds = (("rss_anon", anonymous()), ("swap", 0))
        lines += [
            f'memory_bytes{{process="{self.options.process}",kind="{k}"}} {v}' for k, v in kinds
        ]
        lines += [f'memory_bytes{{process="{other}",kind="rss_anon"}} 50000000']
        files = len(os.listdir("/proc/self/fd"))
        lines += [f'open_files{{process="{self.options.process}"}} {files}']
        lines += [f'threads{{process="{self.options.process}"}} 1']
        return "".join(f"flatwake_{line}\n" for line in lines)


def unread(writer: asyncio.StreamWriter) -> float:
    """Seconds that a request has waited in the kernel, as Flatwake counts them, too."""
    connection = writer.get_extra_info("socket")
    info = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 56)
    return int.from_bytes(info[52:56], sys.byteorder) / 1000


def stopped(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"


def anonymous() -> int:
    found = re.search(r"RssAnon:\s+(\d+)", Path("/proc/self/status").read_text())
    assert found
    return int(found.group(1)) * 1024


def chunk(writer: asyncio.StreamWriter, data: bytes) -> None:
    writer.write(b"%x\r\n%s\r\n" % (len(data), data))


def send(writer: asyncio.StreamWriter, event: dict[str, object]) -> None:
    chunk(writer, b"data: " + json.dumps(event).encode() + b"\n\n")


async def plain(
    writer: asyncio.StreamWriter,
    status: int,
    text: str,
    kind: str = "application/json",
    extra: dict[str, str] | None = None,
) -> None:
    body = text.encode()
    headers = {"Content-Type": kind, "Content-Length": str(len(body)), **(extra or {})}
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    writer.write(f"HTTP/1.1 {status} X\r\n{lines}\r\n".encode() + body)
    await writer.drain()


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--rate", type=float, default=200.0, help="tokens/s of one stream")
    parser.add_argument("--contention", type=float, default=0.02)
    parser.add_argument("--prefill", type=float, default=0.0001, help="seconds a prompt token")
    parser.add_argument("--slots", type=int, default=8)
    parser.add_argument("--queue", type=int, default=64)
    parser.add_argument("--context", type=int, default=2048)
    parser.add_argument("--leak", type=int, default=0, help="bytes a request")
    parser.add_argument("--process", default="api", choices=["api", "engine"])
    parser.add_argument("--drop", type=int, default=0, help="break a stream every so many tokens")
    parser.add_argument("--histogram-factor", type=float, default=1.0)
    for flag in ("miscount", "cross", "wrong-under-load", "leak-slots", "no-retry-after"):
        parser.add_argument(f"--{flag}", action="store_true")
    parser.add_argument("--no-metrics", action="store_true")
    parser.add_argument("--stamps", action="store_true", help="say 5 ms ago before each event")
    parser.add_argument("--engine", action="store_true", help="keep a child, and end with it")
    parser.add_argument("--silent-death", action="store_true", help="end streams without a word")
    return parser.parse_args()


async def main() -> None:
    options = arguments()
    fake = Fake(options)
    server = await asyncio.start_server(fake.serve, "127.0.0.1", options.port)
    print(json.dumps({"port": server.sockets[0].getsockname()[1]}), flush=True)
    if options.engine:
        await fake.keep_engine()
        sys.exit(1)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main())
