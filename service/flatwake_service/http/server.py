"""A server's life: listen, load, serve, drain, end. Owns the process's signals and exit code."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import signal
import socket
import time
import traceback
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any, cast

import uvicorn

from flatwake_service.errors import FlatwakeError
from flatwake_service.http import app
from flatwake_service.http.drain import Drain
from flatwake_service.http.engine import Engine, EngineEnded
from flatwake_service.http.language import Language
from flatwake_service.http.protocol import Protocol
from flatwake_service.http.service import Service
from flatwake_service.manifest import Reason, Termination

KEEP_ALIVE = 75
"""Seconds an idle connection stays: longer than clients and proxies keep theirs (60 s is usual),
so that they close first and no request meets a closing connection.
"""
LINGER = 1.0
"""Seconds that a server whose engine died still answers, so that readiness is seen to fall."""

TELL = 5.0
"""Seconds between two lines of progress while a model loads."""

TERMINATION_LOG = Path("/dev/termination-log")


async def run(
    service: Service,
    listener: socket.socket,
    language: Awaitable[Language],
    engine: Awaitable[Engine],
    *,
    on_ready: Callable[[Service], None] | None = None,
    termination_log: Path = TERMINATION_LOG,
) -> int:
    """Serves until a signal or the engine ends it; the process's exit code.

    `language` reads tokenizer and template, `engine` spawns the engine: both may have begun.
    `/status` answers meanwhile.
    """
    server = _uvicorn(service)
    drain = Drain(service, server)
    refresh = asyncio.create_task(service.keys.refresh(lambda: _keys_changed(service)))
    with _signals(drain):
        serving = asyncio.create_task(server.serve(sockets=[listener]))
        work = asyncio.create_task(_work(service, language, engine, drain, on_ready))
        try:
            await work
        except (FlatwakeError, OSError) as error:
            service.failure = _failure(error)
        except Exception as error:
            # A bug of ours: its traceback is told by whoever catches it, and the pod says why.
            described = f"{type(error).__name__}: {error}"
            _write_termination(termination_log, Reason.ENGINE_FAILED.value, described)
            raise
        finally:
            refresh.cancel()
            await _end(service, server, serving, drain)
    if service.failure is None:
        return 1 if drain.hurried else 0
    reason, message = service.failure
    service.log("ended", level="error", reason=reason, message=message)
    _write_termination(termination_log, reason, message)
    return 1


async def _work(
    service: Service,
    language: Awaitable[Language],
    engine: Awaitable[Engine],
    drain: Drain,
    on_ready: Callable[[Service], None] | None,
) -> None:
    """From nothing to the reason to end, which is raised or put down unless it is a signal."""
    began = time.monotonic()
    loading = asyncio.ensure_future(_load(service, language, engine))
    if await _first(loading, drain.asked.wait()) is not loading:
        loading.cancel()
        await asyncio.wait({loading})
        return
    served = await loading
    # What the start left behind lives as long as the process; what comes now is collected soon.
    gc.collect()
    gc.freeze()
    service.log("ready", seconds=round(time.monotonic() - began, 3))
    if reduced := service.context_reduced:
        service.log("context reduced", level="warning", message=reduced)
    if on_ready is not None:
        on_ready(service)
    ended = asyncio.ensure_future(served.ended.wait())
    if await _first(ended, drain.asked.wait()) is not ended:
        draining = asyncio.ensure_future(drain.run())
        if await _first(ended, draining) is not ended:
            return
    failure = served.failure
    service.failure = (
        (failure.reason, failure.message)
        if failure is not None
        else (Reason.ENGINE_FAILED.value, "the engine process ended")
    )
    await asyncio.sleep(LINGER)


async def _first(
    wanted: asyncio.Future[Any], other: Coroutine[Any, Any, object] | asyncio.Future[Any]
) -> asyncio.Future[Any]:
    """Whichever is done first; the first one if both are, or if the second is cancelled."""
    rival = asyncio.ensure_future(other)
    await asyncio.wait({wanted, rival}, return_when=asyncio.FIRST_COMPLETED)
    if not wanted.done():
        return rival
    rival.cancel()
    return wanted


async def _load(
    service: Service, language: Awaitable[Language], engine: Awaitable[Engine]
) -> Engine:
    loading = service.engine = await engine
    service.log("engine started", pid=loading.pid)
    telling = asyncio.create_task(_tell(service, loading))
    try:
        spoken = await language
        await loading.ready()
    finally:
        telling.cancel()
    service.language = spoken
    return loading


async def _tell(service: Service, engine: Engine) -> None:
    """A line of progress every few seconds, for whoever waits."""
    while True:
        await asyncio.sleep(TELL)
        progress = engine.progress
        if progress is not None and progress.total:
            share = f"{progress.done / progress.total:.0%}"
            service.log(progress.phase, done=progress.done, total=progress.total, share=share)


async def _end(
    service: Service, server: uvicorn.Server, serving: asyncio.Task[None], drain: Drain
) -> None:
    await drain.finish()
    server.should_exit = True
    await serving
    if service.engine is not None:
        await service.engine.close()


def _uvicorn(service: Service) -> uvicorn.Server:
    web = logging.getLogger("uvicorn")
    web.handlers, web.propagate = [_Forward(service)], False
    web.setLevel(logging.ERROR)
    config = uvicorn.Config(
        app.build(service),
        http=Protocol,
        loop="none",
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_keep_alive=KEEP_ALIVE,
        timeout_graceful_shutdown=2,
    )
    return _Server(config)


class _Forward(logging.Handler):
    """What uvicorn has to say, a traceback most likely, as a line of our log."""

    def __init__(self, service: Service) -> None:
        super().__init__()
        self._service = service

    def emit(self, record: logging.LogRecord) -> None:
        trace = None
        if record.exc_info and record.exc_info[0] is not None:
            # Without the exception's own text, which may quote a prompt.
            frames = traceback.format_tb(record.exc_info[2])
            trace = "".join(frames) + record.exc_info[0].__name__
        self._service.log("bug", level="error", message=record.getMessage().strip(), trace=trace)


class _Server(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Signals are ours."""
        yield


@contextlib.contextmanager
def _signals(drain: Drain) -> Iterator[None]:
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, drain.signalled, number)
    try:
        yield
    finally:
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)


def _failure(error: FlatwakeError | OSError) -> tuple[str, str]:
    if isinstance(error, OSError):
        return Reason.ENGINE_FAILED.value, str(error)
    if isinstance(error, EngineEnded):
        return error.failed.reason, error.failed.message
    return error.reason, str(error)


def _keys_changed(service: Service) -> None:
    if service.keys.missing:
        service.log("keys missing", level="warning", folder=str(service.settings.api_keys_dir))
    else:
        service.log("keys found", folder=str(service.settings.api_keys_dir))


def _write_termination(path: Path, reason: str, message: str) -> None:
    """What Kubernetes shows as the container's message."""
    if not path.exists():
        return
    known = cast("Reason", reason if reason in set(Reason) else Reason.ENGINE_FAILED)
    text = Termination(reason=known, message=message[:3000]).model_dump_json()
    with contextlib.suppress(OSError), path.open("w") as log:
        log.write(text)
