"""A server over a fake engine, on a thread of its own, for clients of the test."""

from __future__ import annotations

import asyncio
import io
import threading
import time
from collections.abc import Callable
from typing import Any, TypeVar

import httpx
import uvloop
from fake_engine import FakeEngine
from fake_text import language
from flatwake_service.http import listener as sockets
from flatwake_service.http import server
from flatwake_service.http.drain import Drain
from flatwake_service.http.log import Log
from flatwake_service.http.service import Service
from flatwake_service.http.settings import Settings

T = TypeVar("T")
PATIENCE = 20.0


class Served:
    """`engine` and `service` belong to the server's thread: touch them by `call`."""

    def __init__(
        self, engine: Callable[[], FakeEngine] = FakeEngine, loaded: bool = True, **settings: Any
    ) -> None:
        given = {"served_name": "fake", "source": "test", "aliases": ("other",), **settings}
        self.settings = Settings(host="127.0.0.1", port=0, **given)
        self.logged = io.StringIO()
        self._make_engine = engine
        self._loaded = loaded
        self._up = threading.Event()
        self._thread = threading.Thread(target=self._serve, daemon=True)

    def __enter__(self) -> Served:
        self._thread.start()
        assert self._up.wait(PATIENCE), "the server didn't start"
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(PATIENCE)
        assert not self._thread.is_alive()

    def _serve(self) -> None:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(self._main())

    async def _main(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._stop = asyncio.Event()
        self.service = Service(self.settings, Log("json", self.logged))
        self.engine = self.service.engine = self._make_engine()
        if self._loaded:
            self.service.language = language()
        listener = sockets.bind("127.0.0.1", 0)
        self.url = sockets.endpoint(listener).removesuffix("/v1")
        web = server._uvicorn(self.service)
        self.drain = Drain(self.service, web)
        serving = asyncio.create_task(web.serve(sockets=[listener]))
        self._up.set()
        await self._stop.wait()
        await self.drain.finish()
        web.should_exit = True
        await serving

    def call(self, work: Callable[[], T]) -> T:
        """Runs something on the server's thread."""

        async def run() -> T:
            return work()

        return asyncio.run_coroutine_threadsafe(run(), self._loop).result(PATIENCE)

    def wait(self, condition: Callable[[], bool], what: str = "") -> None:
        """Waits until a condition holds on the server's thread."""
        end = time.monotonic() + PATIENCE
        pause = threading.Event()
        while not self.call(condition):
            assert time.monotonic() < end, f"never came true: {what or condition}"
            pause.wait(0.005)

    def client(self, **options: Any) -> httpx.Client:
        return httpx.Client(base_url=self.url, timeout=PATIENCE, **options)

    def post(self, path: str, body: Any, **options: Any) -> httpx.Response:
        with self.client() as client:
            return client.post(path, json=body, **options)

    def chat(self, content: str, **fields: Any) -> httpx.Response:
        messages = [{"role": "user", "content": content}]
        return self.post("/v1/chat/completions", {"messages": messages, **fields})

    def assert_idle(self) -> None:
        self.wait(lambda: self.engine.open == 0, "no sequence is left in the engine")
        self.wait(lambda: self.service.admission.in_flight == 0, "no request is left")
        assert self.call(lambda: self.service.admission.sequences) == 0
        assert not self.call(lambda: self.service.open)
