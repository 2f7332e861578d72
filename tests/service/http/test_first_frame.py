"""With the engine held before it reads its second step, the first token is on the wire."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path

import uvloop
from flatwake_service.engine.client import EngineClient
from flatwake_service.engine.config import EngineConfig
from flatwake_service.http import listener as sockets
from flatwake_service.http import server
from flatwake_service.http.language import load_language
from flatwake_service.http.service import Service
from flatwake_service.http.settings import Settings
from tiny_models import write_tiny

PATIENCE = 60.0
BODY = json.dumps(
    {
        "messages": [{"role": "user", "content": "What is a computer?"}],
        "max_tokens": 5,
        "temperature": 0,
        "stream": True,
        "ignore_eos": True,
    }
).encode()


async def events(reader: asyncio.StreamReader, count: int) -> list[str]:
    """The next events' data; the stream must bring that many."""
    found: list[str] = []
    while len(found) < count:
        line = await asyncio.wait_for(reader.readline(), PATIENCE)
        assert line, found
        if line.startswith(b"data: "):
            found.append(line[6:].decode().strip())
    return found


def test_the_first_token_does_not_wait_for_the_second_step(tmp_path: Path) -> None:
    model = write_tiny(tmp_path / "model", "qwen2")
    hold = tmp_path / "hold"
    os.mkfifo(hold)
    config = EngineConfig(model=str(model), backend="reference", hold=str(hold), hold_step=2)

    async def scenario() -> None:
        engine = await EngineClient.start(config)
        service = Service(Settings(served_name="tiny", source="test", port=0))
        service.engine, service.language = engine, load_language(model, None)
        listener = sockets.bind("127.0.0.1", 0)
        web = server._uvicorn(service)
        serving = asyncio.create_task(web.serve(sockets=[listener]))
        try:
            await engine.ready()
            reader, writer = await asyncio.open_connection(*listener.getsockname())
            writer.write(
                b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"
                b"Content-Length: %d\r\n\r\n" % len(BODY) + BODY
            )
            role, first = map(json.loads, await events(reader, 2))
            assert role["choices"][0]["delta"]["role"] == "assistant"
            assert first["choices"][0]["delta"]["content"]
            # The engine waits for this pipe until it is opened here, and so does this.
            release = await asyncio.to_thread(os.open, hold, os.O_WRONLY)
            os.close(release)
            rest = [line async for line in reader if line.startswith(b"data: ")]
            assert rest[-1] == b"data: [DONE]\n"
            assert b'"finish_reason":"length"' in rest[-2]
            writer.close()
        finally:
            web.should_exit = True
            await serving
            await engine.close()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(scenario())
