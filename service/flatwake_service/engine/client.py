"""The API process's side of the engine: starts it, watches it, talks to it.

One client owns one engine child. Everything here runs on the event loop's thread; callbacks of a
sink are plain calls, so that a token costs no task switch.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Sequence
from typing import Protocol, cast

from flatwake_service.engine import messages
from flatwake_service.engine.child import Child, start_child
from flatwake_service.engine.config import EngineConfig
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
    Vocabulary,
)
from flatwake_service.engine.watch import WATCH_SECONDS, Watch
from flatwake_service.errors import FlatwakeError
from flatwake_service.manifest.reasons import Reason

_EXIT_SECONDS = 0.5
"""How long after its socket closed a child may take to exit, before it is killed."""


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
    """

    def __init__(self) -> None:
        self.progress: Loading | None = None
        self.started: Started | None = None
        self.stats = Stats()
        self.failure: Failed | None = None
        self.ended = asyncio.Event()
        self._sinks: dict[int, Sink] = {}
        self._ready = asyncio.Event()
        self._closing = False
        self._vocabulary: Vocabulary | None = None
        self._disconnected = asyncio.Event()
        self._transport: asyncio.WriteTransport | None = None
        self._child: Child | None = None
        self._watch: Watch | None = None
        self._tasks: list[asyncio.Task[None]] = []

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

        Raises:
            OSError: the child can't be started, or there is no folder for its socket.
        """
        client = cls()
        child = await start_child(config, command, lambda: _Connection(client))
        client._child = child
        client._watch = Watch(child.heartbeat, step_timeout, start_timeout, time.monotonic())
        # A quick child may have said something already.
        if client._transport is not None:
            child.stop_listening()
        if client.started is not None:
            client._watch.started()
        client._tasks = [
            asyncio.create_task(client._outlive(child)),
            asyncio.create_task(client._look(client._watch)),
        ]
        return client

    @property
    def pid(self) -> int:
        assert self._child is not None, "made by start"
        return self._child.pid

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
        """Sends a sequence; call it only after `ready`. If the engine has ended meanwhile, the sink
        hears it by `failed`, soon.
        """
        assert self.started is not None, "the engine isn't ready"
        assert message.sequence not in self._sinks, f"sequence {message.sequence} is there"
        if self._send(message):
            self._sinks[message.sequence] = sink
        else:
            why = self._why()
            asyncio.get_running_loop().call_soon(sink.failed, why.reason, why.message)

    def tell_vocabulary(self, size: int) -> None:
        """How many ids the tokenizer knows, once, if `config.vocabulary_follows`."""
        self._vocabulary = Vocabulary(size)
        self._send(self._vocabulary)

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
        if self._child is not None and not self.ended.is_set():
            # While it loads it reads nothing, and has nothing to lose.
            if asked and self.started is not None:
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self.ended.wait(), timeout)
            self._child.kill()
            await self.ended.wait()
        await asyncio.gather(*self._tasks)

    # What the connection calls.

    def _connected(self, transport: asyncio.WriteTransport) -> None:
        self._transport = transport
        if self._child is not None:
            self._child.stop_listening()
        if self._vocabulary is not None:
            self._send(self._vocabulary)
        if self._closing:
            self._send(Shutdown())

    def _received(self, message: Up) -> None:
        if type(message) is Tokens:
            self._dispatch(message)
        elif type(message) is Stats:
            self.stats = message
        elif type(message) is Loading:
            self.progress = message
            if self._watch is not None:
                self._watch.progressed(message, time.monotonic())
        elif type(message) is Started:
            self.started = message
            if self._watch is not None:
                self._watch.started()
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
                    self._drop(number, error, sink)
        for entry in tokens.entries:
            number = entry.sequence
            sink = sinks.get(number) if entry.finish is None else sinks.pop(number, None)
            # A cancelled sequence's last tokens may have been on their way.
            if sink is not None:
                try:
                    sink.tokens(entry, stamp)
                except Exception as error:  # noqa: BLE001  As above.
                    self._drop(number, error, sink)

    def _drop(self, number: int, error: Exception, sink: Sink | None = None) -> None:
        """A sink raised, which is our bug: its sequence ends, and the loop's handler tells. `sink`:
        to be told, unless the end was what it raised at.
        """
        self.cancel(number)
        if sink is not None:
            with contextlib.suppress(Exception):  # It has a bug.
                sink.failed(Reason.ENGINE_FAILED.value, f"the server has a bug: {error!r}")
        asyncio.get_running_loop().call_exception_handler(
            {"message": f"the sink of sequence {number} raised", "exception": error}
        )

    def _broken(self, error: ValueError) -> None:
        self._fail(Failed(Reason.ENGINE_FAILED.value, f"the engine sent no message: {error}"))

    # The child's life.

    def _send(self, message: Down) -> bool:
        transport = self._transport
        if transport is None or transport.is_closing() or self.ended.is_set():
            return False
        # What waits to be read is bounded by admission; an engine that no longer reads doesn't
        # stamp its heartbeat either.
        transport.write(messages.encode(message))
        return True

    async def _outlive(self, child: Child) -> None:
        """Sees the child to its end, and tells everyone."""
        exited = asyncio.create_task(child.wait())
        lost = asyncio.create_task(self._disconnected.wait())
        await asyncio.wait([exited, lost], return_when=asyncio.FIRST_COMPLETED)
        if not exited.done():
            await asyncio.wait([exited], timeout=_EXIT_SECONDS)
            if not exited.done():
                self._fail(
                    Failed(Reason.ENGINE_FAILED.value, "the engine closed its socket and stayed")
                )
        why = await exited
        # What it sent last, such as its reason, may still be on its way.
        if self._transport is not None:
            await asyncio.wait([lost], timeout=_EXIT_SECONDS)
        lost.cancel()
        child.stop_listening()
        if self.failure is None and not self._closing:
            self.failure = why
        self._finish()

    def _finish(self) -> None:
        self.ended.set()
        self._ready.set()
        if self._transport is not None:
            self._transport.abort()
        why = self._why()
        sinks, self._sinks = self._sinks, {}
        for number, sink in sinks.items():
            try:
                sink.failed(why.reason, why.message)
            except Exception as error:  # noqa: BLE001  As in _dispatch.
                self._drop(number, error)

    async def _look(self, watch: Watch) -> None:
        while not self.ended.is_set():
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self.ended.wait(), WATCH_SECONDS)
            failed = watch.look(time.monotonic())
            if failed is not None:
                self._fail(failed)

    def _fail(self, failed: Failed) -> None:
        """Ends a child that can't be trusted any more."""
        if self.failure is None and not self.ended.is_set():
            self.failure = failed
        if self._child is not None:
            self._child.kill()

    def _why(self) -> Failed:
        return self.failure or Failed(Reason.DRAINING.value, "the server is shutting down")


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
