"""A proxy before an API server that behaves as badly as one can."""

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Callable
from enum import StrEnum
from types import TracebackType
from typing import Self

import httpx
from aiohttp import web
from apiserver import ApiServer

EXPIRED = {
    "type": "ERROR",
    "object": {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"},
}


class Fault(StrEnum):
    NONE = "none"
    STORM = "429 to everything"
    GONE = "410 in every watch"
    SILENT = "watches that say nothing"
    DOWN = "an API server that restarts"
    CONFLICT = "409 to every status"
    INVALID = "422 to every status"


STATUSES = {Fault.CONFLICT: (409, "Conflict"), Fault.INVALID: (422, "Invalid")}


class Proxy:
    """Forwards everything, in a thread of its own; `fault` may change at any time."""

    def __init__(self, server: ApiServer) -> None:
        self.server = server
        self.fault = Fault.NONE
        self.refused = 0
        self.written = 0
        self.on_write: Callable[[int], None] = lambda _: None
        """Called with the number of a write that is done and not yet answered."""
        self.url = ""
        self._loop = asyncio.new_event_loop()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._ready.wait(10)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()

    def _run(self) -> None:
        self._loop.run_until_complete(self._serve())
        # Requests whose clients were killed are still there.
        left = asyncio.all_tasks(self._loop)
        for task in left:
            task.cancel()
        if left:
            self._loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
        self._loop.close()

    async def _serve(self) -> None:
        self._stop = asyncio.Event()
        self._client = httpx.AsyncClient(
            base_url=self.server.url, verify=False, timeout=None, trust_env=False
        )
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", self._forward)
        runner = web.AppRunner(app, shutdown_timeout=0.1)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        self.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        self._ready.set()
        await self._stop.wait()
        await runner.cleanup()
        await self._client.aclose()

    async def _forward(self, request: web.Request) -> web.StreamResponse:
        if self.fault is Fault.STORM:
            self.refused += 1
            text = json.dumps({"kind": "Status", "code": 429, "reason": "TooManyRequests"})
            return web.Response(status=429, text=text, headers={"Retry-After": "1"})
        if self.fault is Fault.DOWN:
            self.refused += 1
            assert request.transport is not None
            request.transport.abort()
            return web.Response(status=503)
        if self.fault in STATUSES and request.path.endswith("/status"):
            self.refused += 1
            code, reason = STATUSES[self.fault]
            text = json.dumps({"kind": "Status", "code": code, "reason": reason})
            return web.Response(status=code, text=text)
        headers = {
            key: value
            for key, value in request.headers.items()
            if key in ("Authorization", "Content-Type", "Accept")
        }
        asked = self._client.build_request(
            request.method, request.raw_path, headers=headers, content=await request.read()
        )
        answer = await self._client.send(asked, stream=True)
        try:
            if request.query.get("watch") == "true":
                return await self._watch(request, answer)
            body = await answer.aread()
            if request.method != "GET" and _changes(request):
                self.written += 1
                self.on_write(self.written)
            kind = answer.headers.get("Content-Type", "application/json")
            return web.Response(
                status=answer.status_code, body=body, headers={"Content-Type": kind}
            )
        finally:
            await answer.aclose()

    async def _watch(self, request: web.Request, answer: httpx.Response) -> web.StreamResponse:
        stream = web.StreamResponse(status=answer.status_code)
        stream.content_type = "application/json"
        await stream.prepare(request)
        lines = answer.aiter_lines()
        waiting: asyncio.Task[str] | None = None
        while self.fault not in (Fault.DOWN, Fault.STORM) and not self._stop.is_set():
            waiting = waiting or asyncio.ensure_future(_next(lines))
            done, _ = await asyncio.wait({waiting}, timeout=0.2)
            if self.fault is Fault.GONE:
                await stream.write(json.dumps(EXPIRED).encode() + b"\n")
                break
            if done:
                line, waiting = waiting.result(), None
                if not line:
                    break
                if self.fault is not Fault.SILENT:
                    await stream.write(line.encode() + b"\n")
        if waiting:
            waiting.cancel()
        return stream


def _changes(request: web.Request) -> bool:
    """Whether a call may have changed one of the operator's objects."""
    own = "selfsubjectaccessreviews" in request.path or "/leases" in request.path
    return not own and "dryRun" not in request.query


async def _next(lines: AsyncIterator[str]) -> str:
    try:
        return await anext(lines, "")
    except httpx.HTTPError:
        return ""  # closed from our side
