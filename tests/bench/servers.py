"""The two servers under test: started, watched, ended."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from flatwake_service.bench import sockets

PATIENCE = 300.0
CONTEXT = 2304
"""Positions a user: the longest prompt and what is generated after it."""
USERS = 8


@dataclass(frozen=True)
class Server:
    """`startup`: seconds from exec to the first token. `fields` switch the prompt cache off."""

    url: str
    process: subprocess.Popen[bytes]
    startup: float
    fields: Mapping[str, object]

    def peak_bytes(self) -> int:
        """The most memory that was resident, of all its processes."""
        return sum(_status(pid, "VmHWM") for pid in self._pids())

    def private_bytes(self) -> int:
        """What is resident now, each page shared by n processes counted as 1/n (Pss)."""
        return sum(_pss(pid) for pid in self._pids())

    def _pids(self) -> list[int]:
        return [self.process.pid, *_children(self.process.pid)]


@contextmanager
def ours(model: Path) -> Iterator[Server]:
    """`flatwake serve` at its defaults; without sharing of prompts, which fresh ones never meet."""
    command = [sys.executable, "-m", "flatwake_service.cli.main", "serve", "--model", str(model)]
    command += ["--host", "127.0.0.1", "--backend", "cpu", "--max-sequences", str(USERS)]
    command += ["--context-length", str(CONTEXT)]
    with _started(command, "/ready", {}) as server:
        yield server


@contextmanager
def peers(program: Path, model: Path, settings: Sequence[str]) -> Iterator[Server]:
    """llama-server with as many slots and as much context, its caches off."""
    threads = str(len(os.sched_getaffinity(0)))
    command = [str(program), "-m", str(model), "--host", "127.0.0.1", "-t", threads, "-tb", threads]
    command += ["-np", str(USERS), "-c", str(USERS * CONTEXT), "--no-cache-prompt"]
    command += ["--cache-ram", "0", *settings]
    with _started(command, "/health", {"cache_prompt": False}) as server:
        yield server


@contextmanager
def _started(command: list[str], ready: str, fields: Mapping[str, object]) -> Iterator[Server]:
    port = _free_port()
    began = time.monotonic()
    process = subprocess.Popen(
        [*command, "--port", str(port)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        _wait(process, port, ready)
        url = f"http://127.0.0.1:{port}/v1"
        streams, _ = sockets.complete(url, [range(1000, 1016)], 1, fields)
        yield Server(url, process, streams[0].times[0] - began, fields)
    finally:
        process.send_signal(signal.SIGINT)
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _wait(process: subprocess.Popen[bytes], port: int, path: str) -> None:
    end = time.monotonic() + PATIENCE
    request = f"GET {path} HTTP/1.1\r\nHost: bench\r\nConnection: close\r\n\r\n".encode()
    while time.monotonic() < end and process.poll() is None:
        try:
            with socket.create_connection(("127.0.0.1", port), 5) as connection:
                connection.sendall(request)
                if b" 200 " in connection.recv(64):
                    return
        except OSError:
            pass
        time.sleep(0.005)
    raise ConnectionError(f"{Path(process.args[0]).name} didn't become ready")  # type: ignore[index,arg-type]


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
    return port


def _children(pid: int) -> list[int]:
    found = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        for child in map(int, (task / "children").read_text().split()):
            found += [child, *_children(child)]
    return found


def _status(pid: int, name: str) -> int:
    found = re.search(rf"^{name}:\s+(\d+) kB$", Path(f"/proc/{pid}/status").read_text(), re.M)
    return int(found[1]) * 1024 if found else 0


def _pss(pid: int) -> int:
    found = re.search(r"^Pss:\s+(\d+) kB$", Path(f"/proc/{pid}/smaps_rollup").read_text(), re.M)
    return int(found[1]) * 1024 if found else 0
