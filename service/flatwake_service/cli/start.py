"""A server's start: engine process, tokenizer and HTTP layer come up side by side.

The engine's process needs the longest, so it is made before anything heavy is imported here.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from flatwake_service.cli import backends
from flatwake_service.engine.client import EngineClient
from flatwake_service.engine.config import EngineConfig
from flatwake_service.http.log import Log

if TYPE_CHECKING:
    from flatwake_service.http.language import Language
    from flatwake_service.http.service import Service
    from flatwake_service.http.settings import Settings


async def serve(
    settings: Settings,
    config: EngineConfig,
    backend: str,
    bound: socket.socket,
    log: Log,
    *,
    step_timeout: float,
    start_timeout: float,
    on_ready: Callable[[Service], None],
) -> int:
    """Serves on `bound` until a signal or the engine ends it; the process's exit code."""
    model = Path(config.model)
    language = asyncio.create_task(asyncio.to_thread(_load_language, model, settings.chat_template))

    async def start() -> EngineClient:
        name = backend
        if backend == "auto":
            name, reason = await asyncio.to_thread(backends.choose)
            log("backend", backend=name, reason=reason)
        client = await EngineClient.start(
            msgspec.structs.replace(config, backend=name, vocabulary_follows=True),
            step_timeout=step_timeout,
            start_timeout=start_timeout,
        )
        language.add_done_callback(partial(_tell_vocabulary, client))
        return client

    engine = asyncio.create_task(start())
    # In a thread, so that the child is spawned and the vocabulary told meanwhile.
    await asyncio.to_thread(_import_server)
    from flatwake_service.http import server
    from flatwake_service.http.service import Service

    return await server.run(Service(settings, log), bound, language, engine, on_ready=on_ready)


def _load_language(model: Path, template: Path | None) -> Language:
    from flatwake_service.http.language import load_language

    return load_language(model, template)


def _import_server() -> None:
    import_module("flatwake_service.http.server")


def _tell_vocabulary(client: EngineClient, language: asyncio.Task[Language]) -> None:
    # One that failed ends the server, and the engine with it.
    if not language.cancelled() and language.exception() is None:
        client.tell_vocabulary(language.result().tokenizer.size)
