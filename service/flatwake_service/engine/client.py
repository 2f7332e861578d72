"""The API process's side of the engine: starts it, watches it, talks to it.

One client owns one engine child. Everything here runs on the event loop's thread; callbacks of a
sink are plain calls, so that a token costs no task switch.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol, cast

import msgspec

from flatwake_service.engine import config as configuration
from flatwake_service.engine import messages
from flatwake_service.engine.config import EngineConfig
from flatwake_service.engine.heartbeat import IDLE_SECONDS, Heartbeat
from flatwake_service.engine.messages import (
    Cancel,
    Down,
    Drain,
    Failed,
    Frames,
    Loading,
    SequenceTokens,
    Shutdown,
    Started,
    Stats,
    Submit,
    Tokens,
    Up,
)
from flatwake_service.errors import FlatwakeError
from flatwake_service.manifest.status import Reason

WATCH_SECONDS = 0.25
_EXIT_SECONDS = 0.5
"""How long after its socket closed a child may take to exit, before it is killed."""
_BACKLOG_BYTES = 64 << 20
"""What may wait to be read by the engine before it counts as not reading."""
_SOCKET_PATH_BYTES = 99
_RUN = Path("/run/flatwake")


class Sink(Protocol):
    """Where a sequence's news go; called on the event loop's thread, never from `submit` itself.

    The last call is either `tokens` with an entry whose `finish` is set, or `failed`. Nothing is
    called after it, nor after `EngineClient.cancel`. A sink must not raise.
    """

    def started(self) -> None:
        """The sequence left the queue: its first prompt chunk ran. At most once."""

    def tokens(self, entry: SequenceTokens, stamp: float) -> None:
        """New tokens, its end, or both. `stamp`: CLOCK_MONOTONIC seconds when they were read."""

    def failed(self, reason: str, message: str) -> None:
        """The engine ended, or is being closed; `reason` is one of the manifest's closed list."""


class EngineEnded(FlatwakeError):
    """The engine ended before it was ready. `failed.reason` is of the manifest's closed list."""

    reason = "EngineFailed"

    def __init__(self, failed: Failed) -> None:
        super().__init__(failed.message)
        self.failed = failed


class EngineClient:
    """One engine child. Made by `start`.

    Attributes:
        progress: the newest `Loading`; None before the first.
        started: what the engine said when it became ready; None before.
        stats: its newest values (zeros before the first).
        failure: why it ended, unless `close` ended it.
        ended: set once the child is gone, for whatever reason.
        pid: the child's.
    """

    def __init__(
        self,
        folder: Path,
        heartbeat: Heartbeat,
        step_timeout: float,
        start_timeout: float | None,
    ) -> None:
        self.progress: Loading | None = None
        self.started: Started | None = None
        self.stats = Stats()
        self.failure: Failed | None = None
        self.ended = asyncio.Event()
        self.pid = 0
        self._heartbeat = heartbeat
        self._step_timeout = step_timeout
        self._start_timeout = start_timeout
        self._sinks: dict[int, Sink] = {}
        self._ready = asyncio.Event()
        self._closing = False
        self._disconnected = asyncio.Event()
        self._transport: asyncio.WriteTransport | None = None
        self._process: asyncio.subprocess.Process | None = None
        self._server: asyncio.Server | None = None
        self._folder = folder
        self._tasks: list[asyncio.Task[None]] = []
        self._moved = time.monotonic()

    @classmethod
    async def start(
        cls,
        config: EngineConfig,
        *,
        command: Sequence[str] | None = None,
        step_timeout: float = 60.0,
        start_timeout: float | None = None,
    ) -> EngineClient:
        """Spawns the child and returns at once; `ready` waits for it. Call it on the main thread:
        the kernel ends the child with the thread that made it.

        `config.socket` and `config.heartbeat` are filled in here (pass ""). `command` replaces
        `python -m flatwake_service.engine.worker`; the configuration's JSON is appended to it.
        `step_timeout`: seconds without a sign of life, once started, until the engine is killed
        as hung. `start_timeout`: seconds without progress while loading; None: unbounded.
        """
        folder = _private_folder()
        heartbeat, descriptor = Heartbeat.create()
        client = cls(folder, heartbeat, step_timeout, start_timeout)
        config = msgspec.structs.replace(
            config, socket=str(folder / "engine"), heartbeat=f"/proc/self/fd/{descriptor}"
        )
        command = command or [sys.executable, "-m", "flatwake_service.engine.worker"]
        try:
            client._server = await asyncio.get_running_loop().create_unix_server(
                lambda: _Connection(client), config.socket
            )
            process = await asyncio.create_subprocess_exec(
                *command,
                configuration.encode(config),
                stdin=asyncio.subprocess.DEVNULL,
                pass_fds=(descriptor,),
                # A terminal's Ctrl-C is the API process's to hear, from the first moment on.
                start_new_session=True,
            )
        except BaseException:
            client._stop_listening()
            raise
        finally:
            os.close(descriptor)
        client._process, client.pid = process, process.pid
        client._tasks = [
            asyncio.create_task(client._outlive(process)),
            asyncio.create_task(client._watch()),
        ]
        return client

    async def ready(self) -> Started:
        """Waits until the engine takes sequences.

        Raises:
            EngineEnded: it ended first.
        """
        await self._ready.wait()
        if self.started is None or self.ended.is_set():
            raise EngineEnded(self._why())
        return self.started

    def submit(self, message: Submit, sink: Sink) -> None:
        """Sends a sequence; call it only after `ready`. If the engine has ended meanwhile, or
        doesn't read what it is sent, the sink hears it by `failed`, soon.
        """
        assert self.started is not None, "the engine isn't ready"
        assert message.sequence not in self._sinks, f"sequence {message.sequence} is there"
        if self._send(message):
            self._sinks[message.sequence] = sink
        else:
            why = self._why()
            asyncio.get_running_loop().call_soon(sink.failed, why.reason, why.message)

    def cancel(self, sequence: int) -> None:
        """Forgets a sequence; its sink isn't called again. Unknown and ended ones are ignored."""
        if self._sinks.pop(sequence, None) is not None:
            self._send(Cancel(sequence))

    def drain(self) -> None:
        """Tells the engine that nothing new comes."""
        self._send(Drain())

    async def close(self, timeout: float = 5.0) -> None:
        """Ends the engine: asks it to, waits `timeout` seconds, kills it. Open sinks get `failed`.
        May be called twice, and after the engine ended.
        """
        self._closing = True
        asked = self._send(Shutdown())
        if self._process is not None and not self.ended.is_set():
            if asked:
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self.ended.wait(), timeout)
            self._kill()
            await self.ended.wait()
        await asyncio.gather(*self._tasks)

    # What the connection calls.

    def _connected(self, transport: asyncio.WriteTransport) -> None:
        self._transport = transport
        self._stop_listening()
        if self._closing:
            self._send(Shutdown())

    def _received(self, message: Up) -> None:
        if type(message) is Tokens:
            self._dispatch(message)
        elif type(message) is Stats:
            self.stats = message
        elif type(message) is Loading:
            if message != self.progress:
                self.progress, self._moved = message, time.monotonic()
        elif type(message) is Started:
            self.started = message
            self._ready.set()
        elif type(message) is Failed:
            self.failure = self.failure or message

    def _dispatch(self, tokens: Tokens) -> None:
        sinks, stamp = self._sinks, tokens.stamp
        for number in tokens.started:
            sink = sinks.get(number)
            if sink is not None:
                try:
                    sink.started()
                except Exception as error:  # noqa: BLE001  One sink's bug must not cost the others.
                    self._drop(number, error)
        for entry in tokens.entries:
            number = entry.sequence
            sink = sinks.get(number) if entry.finish is None else sinks.pop(number, None)
            # A cancelled sequence's last tokens may have been on their way.
            if sink is not None:
                try:
                    sink.tokens(entry, stamp)
                except Exception as error:  # noqa: BLE001  As above.
                    self._drop(number, error)

    def _drop(self, number: int, error: Exception) -> None:
        """A sink raised, which is our bug: its sequence ends, and the loop's handler tells."""
        self.cancel(number)
        asyncio.get_running_loop().call_exception_handler(
            {"message": f"the sink of sequence {number} raised", "exception": error}
        )

    def _broken(self, error: ValueError) -> None:
        self._fail(Reason.ENGINE_FAILED, f"the engine sent what isn't a message: {error}")

    # The child's life.

    def _send(self, message: Down) -> bool:
        transport = self._transport
        if transport is None or transport.is_closing() or self.ended.is_set():
            return False
        transport.write(messages.encode(message))
        if transport.get_write_buffer_size() > _BACKLOG_BYTES:
            self._fail(Reason.ENGINE_FAILED, "the engine doesn't read what it is sent")
        return True

    def _stop_listening(self) -> None:
        """One child, one connection: then neither socket nor folder is needed any more."""
        if self._server is not None:
            self._server.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    async def _outlive(self, process: asyncio.subprocess.Process) -> None:
        """Sees the child to its end, and tells everyone."""
        exited = asyncio.create_task(process.wait())
        lost = asyncio.create_task(self._disconnected.wait())
        await asyncio.wait([exited, lost], return_when=asyncio.FIRST_COMPLETED)
        if not exited.done():
            await asyncio.wait([exited], timeout=_EXIT_SECONDS)
            if not exited.done():
                self._fail(Reason.ENGINE_FAILED, "the engine closed its socket and stayed")
        code = await exited
        # What it sent last, such as its reason, may still be on its way.
        if self._transport is not None:
            await asyncio.wait([lost], timeout=_EXIT_SECONDS)
        lost.cancel()
        self._stop_listening()
        if self.failure is None and not self._closing:
            self.failure = Failed(Reason.ENGINE_FAILED, _describe_exit(code))
        self._finish()

    def _finish(self) -> None:
        self.ended.set()
        self._ready.set()
        if self._transport is not None:
            self._transport.abort()
        why = self._why()
        sinks, self._sinks = list(self._sinks.values()), {}
        for sink in sinks:
            sink.failed(why.reason, why.message)

    async def _watch(self) -> None:
        """Ends an engine that shows no sign of life, or whose start stands still."""
        looked = since = time.monotonic()
        while not self.ended.is_set():
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self.ended.wait(), WATCH_SECONDS)
            now = time.monotonic()
            # A look that comes late says that this process stood still, perhaps with the engine.
            if now - looked > 4 * WATCH_SECONDS:
                since = now
            looked = now
            if self.started is not None:
                self._judge_life(now - max(self._heartbeat.stamp, since))
            elif self._start_timeout is not None:
                self._judge_start(now - max(self._moved, since), self._start_timeout)

    def _judge_life(self, silent: float) -> None:
        step = self._heartbeat.step
        # Between two steps it stamps as often as it wakes up.
        bound = self._step_timeout if step else max(self._step_timeout, 3 * IDLE_SECONDS)
        if silent > bound:
            where = f"in step {step}" if step else "idle"
            message = f"device hung: no sign of life for {silent:.1f} s, {where}"
            self._fail(Reason.DEVICE_HUNG, message)

    def _judge_start(self, still: float, bound: float) -> None:
        if still > bound:
            done = _describe_progress(self.progress)
            self._fail(Reason.NO_PROGRESS, f"no progress for {still:.1f} s{done}")

    def _fail(self, reason: Reason, message: str) -> None:
        """Ends a child that can't be trusted any more."""
        if self.failure is None and not self.ended.is_set():
            self.failure = Failed(reason, message)
        self._kill()

    def _kill(self) -> None:
        if self._process is not None and self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()

    def _why(self) -> Failed:
        return self.failure or Failed(Reason.DRAINING, "the server is shutting down")


class _Connection(asyncio.Protocol):
    """The engine's socket: whole frames to the client's methods."""

    def __init__(self, client: EngineClient) -> None:
        self._client = client
        self._frames = Frames()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # A cast, since uvloop's transports are of no asyncio class.
        self._client._connected(cast(asyncio.WriteTransport, transport))

    def data_received(self, data: bytes) -> None:
        try:
            received = [messages.decode_up(body) for body in self._frames.feed(data)]
        except ValueError as error:
            self._client._broken(error)
            return
        for message in received:
            self._client._received(message)

    def connection_lost(self, exc: Exception | None) -> None:
        self._client._disconnected.set()


def _private_folder() -> Path:
    """A folder that only this user may enter, short enough for a socket in it."""
    parents = [_RUN, Path(tempfile.gettempdir()), Path("/tmp")]  # noqa: S108
    for parent in parents:
        long = len(os.fsencode(parent)) + len("/engine-xxxxxxxx/engine") > _SOCKET_PATH_BYTES
        if parent.is_dir() and os.access(parent, os.W_OK | os.X_OK) and not long:
            return Path(tempfile.mkdtemp(prefix="engine-", dir=parent))
    raise FileNotFoundError(f"no folder for the engine's socket: none of {parents} will do")


def _describe_exit(code: int) -> str:
    if code >= 0:
        return f"the engine process exited with code {code}; its log says why"
    names = {number.value: number.name for number in signal.Signals}
    cause = ": by hand, or out of memory" if -code == signal.SIGKILL else ""
    return f"the engine process was ended by {names.get(-code, f'signal {-code}')}{cause}"


def _describe_progress(progress: Loading | None) -> str:
    if progress is None:
        return ""
    return f" while {progress.phase}, at {progress.done} of {progress.total}"
