"""Bodies on their way in: all together within bounds, and small ones past slow ones."""

from __future__ import annotations

import asyncio
import re
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest
from fake_engine import FakeEngine
from flatwake_service.http import apart, schema
from flatwake_service.http import body as body_module
from flatwake_service.http.errors import ApiError, Code
from flatwake_service.http.room import MOST_WAITING, TOTAL, Room
from process import ServerProcess
from served import Served

LARGE = 4 << 20
CONTENT = b'{"nonsense":"' + b"a" * (LARGE - 15) + b'"}'
HEAD = b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(CONTENT)
SHORT = {"messages": [{"role": "user", "content": "say hello."}]}


@contextmanager
def uploads(url: str, count: int) -> Iterator[list[socket.socket]]:
    """Connections that hold little themselves of what they have sent."""
    parts = urlsplit(url)
    with ExitStack() as stack:
        opened = [stack.enter_context(socket.socket()) for _ in range(count)]
        for connection in opened:
            connection.settimeout(60)
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 16)
            connection.connect((parts.hostname, parts.port))
        yield opened


def push(connections: list[socket.socket], data: bytes, sent: list[int]) -> None:
    """Sends what the server takes of all but the last byte, until it takes no more."""
    for connection in connections:
        connection.setblocking(False)
    still, pause = time.monotonic(), threading.Event()
    while time.monotonic() - still < 0.5:
        for index, connection in enumerate(connections):
            part = memoryview(data)[sent[index] : -1]
            if len(part):
                try:
                    taken = connection.send(part)
                except BlockingIOError:
                    continue
                sent[index] += taken
                still = time.monotonic()
        pause.wait(0.01)
    for connection in connections:
        connection.settimeout(60)


def anonymous(pid: int) -> int:
    found = re.search(r"RssAnon:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    assert found
    return int(found[1]) * 1024


@pytest.mark.timeout(120)
def test_fifty_slow_uploads_neither_grow_the_server_nor_hold_up_a_small_request() -> None:
    count, data = 50, HEAD + CONTENT
    with ServerProcess(queue_timeout=90.0) as server, httpx.Client(timeout=20) as client:
        server.wait_ready()
        base = server.url.removesuffix("/v1")
        pid = client.get(f"{base}/status").json()["pids"]["api"]
        assert client.post(f"{server.url}/chat/completions", json=SHORT).status_code == 200
        before = anonymous(pid)
        with uploads(server.url, count) as connections:
            sent = [0] * count
            push(connections, data, sent)
            # All of them are in the middle, and most of them can't go on.
            assert 0 < sum(total == len(data) - 1 for total in sent) <= TOTAL // LARGE
            for _ in range(5):
                asked = time.monotonic()
                answer = client.post(f"{server.url}/chat/completions", json=SHORT)
                assert answer.status_code == 200
                assert time.monotonic() - asked < 5.0
            grown = anonymous(pid) - before
            assert grown < TOTAL + count * (512 << 10) < count * LARGE
            # As those that have room end, the next ones get theirs: nobody is forgotten.
            for connection, done in zip(connections, sent, strict=True):
                threading.Thread(target=connection.sendall, args=(data[done:],)).start()
            for connection in connections:
                assert connection.recv(4096).startswith(b"HTTP/1.1 400")


def test_who_finds_no_room_in_time_is_told_to_come_back() -> None:
    with Served(queue_timeout=0.3) as served:
        served.call(lambda: setattr(served.service.room, "free", 0))
        answer = served.post("/v1/completions", {"prompt": "a" * 100_000})
        assert (answer.status_code, answer.headers["retry-after"]) == (503, "5")
        assert answer.json()["error"]["code"] == "queue_timeout"
        assert served.chat("say hello.").status_code == 200
        assert served.call(lambda: (served.service.room.free, served.service.room.waiting)) == (
            0,
            0,
        )


def test_a_large_body_that_crawls_gives_its_room_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("flatwake_service.http.reading.GRACE", 0.2)
    monkeypatch.setattr("flatwake_service.http.reading.SLOWEST", LARGE * 10)
    with Served() as served, uploads(served.url, 1) as (connection,):
        free = served.call(lambda: served.service.room.free)
        connection.sendall(HEAD + CONTENT[:100_000])
        assert connection.recv(4096).startswith(b"HTTP/1.1 504")
        served.wait(lambda: served.service.room.free == free)


def test_an_upload_without_a_length_takes_room_when_it_turns_out_large() -> None:
    def chunks() -> Iterator[bytes]:
        for begin in range(0, len(CONTENT), 100_000):
            yield CONTENT[begin : begin + 100_000]

    with Served() as served, served.client() as client:
        free = served.call(lambda: served.service.room.free)
        answer = client.post("/v1/completions", content=chunks())
        assert answer.json()["error"]["code"] == "unknown_field"
        served.wait(lambda: served.service.room.free == free)


def test_room_is_given_in_turn_and_what_nobody_takes_comes_back() -> None:
    async def scenario() -> None:
        room, order = Room(10), []

        async def use(name: str, size: int, patience: float = 5.0) -> None:
            with room.place() as place:
                await place.take(size, patience)
                order.append(name)
                await asyncio.sleep(0)

        with room.place() as first:
            await first.take(8, 1.0)
            waiting = [asyncio.create_task(use(name, size)) for name, size in (("a", 9), ("b", 1))]
            await asyncio.sleep(0)
            left = asyncio.create_task(use("gone", 1))
            await asyncio.sleep(0)
            left.cancel()
            with pytest.raises(ApiError) as late:
                await use("late", 1, 0.01)
            assert late.value.code is Code.QUEUE_TIMEOUT
            # `b` would fit, but `a` came first.
            assert (order, room.waiting) == ([], 2)
        await asyncio.gather(*waiting)
        assert order == ["a", "b"]
        assert (room.free, room.waiting) == (10, 0)

    asyncio.run(scenario())


def test_a_crowd_that_waits_for_room_is_turned_away() -> None:
    async def scenario() -> None:
        room = Room(1)
        with room.place() as first:
            await first.take(1, 1.0)
            waiting = [asyncio.create_task(room.take(1, 5.0)) for _ in range(MOST_WAITING)]
            await asyncio.sleep(0)
            with pytest.raises(ApiError) as full:
                await room.take(1, 5.0)
            assert (full.value.code, full.value.status) == (Code.QUEUE_FULL, 429)
            assert full.value.retry_after is not None
            for task in waiting:
                task.cancel()
            await asyncio.wait(waiting)
        assert (room.free, room.waiting) == (1, 0)

    asyncio.run(scenario())


INTRICATE: list[tuple[str, bytes, str]] = [
    ("/v1/chat/completions", b'{"messages":[%b{}]}' % (b"{}," * 400_000), "missing_field"),
    ("/v1/completions", b'{"prompt":[%b[]]}' % (b"[]," * 1_000_000), "invalid_value"),
    ("/v1/completions", b'{"prompt":[%b7]}' % (b"7," * 2_000_000), "invalid_value"),
    (
        "/v1/completions",
        b'{"prompt":[%b7],"n":null}' % (b"7," * 200_000),
        "context_length_exceeded",
    ),
    ("/v1/completions", b'{"zzz":[%b7]}' % (b'"a",' * 500_000), "unknown_field"),
]


@pytest.mark.timeout(180)
@pytest.mark.parametrize(("path", "body", "code"), INTRICATE, ids=["{}", "[]", "7", "ids", "zzz"])
def test_an_intricate_body_is_read_elsewhere_and_nobody_waits_for_it(
    path: str, body: bytes, code: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def here(*_: object) -> None:
        raise AssertionError("read on the event loop")

    assert len(body) <= LARGE
    monkeypatch.setattr("flatwake_service.http.apart.bodies.decode", here)
    with Served() as served, served.client() as client, served.client() as other:
        answers: list[httpx.Response] = []
        reading = threading.Thread(
            target=lambda: answers.append(client.post(path, content=body, timeout=150))
        )
        reading.start()
        slowest, asked = 0.0, 0
        while reading.is_alive() or not asked:
            begun = time.monotonic()
            assert other.get("/health").status_code == 200
            slowest, asked = max(slowest, time.monotonic() - begun), asked + 1
        reading.join()
        assert (answers[0].status_code, answers[0].json()["error"]["code"]) == (400, code)
        assert slowest < 2.0


def test_a_long_text_is_read_elsewhere_and_comes_back_whole() -> None:
    text = "für alle, ".encode() * 200_000 + b"say hello."
    engine = FakeEngine(context=1 << 23)
    with Served(lambda: engine) as served, served.client() as client:
        body = b'{"prompt":"%b","max_tokens":null}' % text
        answer = client.post("/v1/completions", content=body, timeout=100)
        assert answer.json()["choices"][0]["text"] == "hello"
        assert bytes(served.engine.submitted[0].ids) == text


def test_a_decoder_that_ends_without_a_word_is_one_clear_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scenario() -> None:
        with pytest.raises(ApiError, match="too intricate"):
            await apart._apart(b'{"prompt":"x"}', schema.CompletionRequest, "refuse")

    monkeypatch.setattr(apart, "__name__", "flatwake_service.http.nonsense")
    asyncio.run(scenario())


NULLS = b'{"prompt":"x","n":null,"stop":null,"max_tokens":5.0,"logit_bias":null}'


def test_what_is_plain_is_read_as_what_has_to_be_looked_at() -> None:
    plain = b'{"prompt":"x","max_tokens":5}'
    found = body_module.plain(plain, schema.CompletionRequest)
    assert found == body_module.decode(NULLS, schema.CompletionRequest)
    assert body_module.plain(NULLS, schema.CompletionRequest) is None
