"""A server that is asked to end loses nothing that it took."""

from __future__ import annotations

import contextlib
import json
import signal
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import urlsplit

import httpx
import pytest
from process import ServerProcess

LONG = {"messages": [{"role": "user", "content": "say " + "word " * 30 + "."}], "stream": True}
SHORT = {"messages": [{"role": "user", "content": "say hello."}]}


def events(response: httpx.Response) -> Iterator[str]:
    for line in response.iter_lines():
        if line.startswith("data: "):
            yield line.removeprefix("data: ")


def ask(url: str, body: dict[str, object]) -> httpx.Response:
    return httpx.post(f"{url}/chat/completions", json=body, timeout=30)


def test_nothing_is_cut_and_nothing_lost() -> None:
    """Eight streams on kept-alive connections, and a client without retries that keeps asking."""
    with ServerProcess(pace=0.01, propagation=1.0, max_sequences=9) as server:
        server.wait_ready()
        begun, fell = threading.Barrier(9), threading.Event()

        def stream(_: int) -> str:
            with httpx.Client(base_url=server.url, timeout=30) as client:
                # The connection is used before, so that it is a kept-alive one.
                assert client.post("/chat/completions", json=SHORT).status_code == 200
                with client.stream("POST", "/chat/completions", json=LONG) as response:
                    incoming = events(response)
                    first = next(incoming)
                    begun.wait()
                    rest = [first, *incoming]
                assert rest.pop() == "[DONE]"
                return "".join(
                    json.loads(e)["choices"][0]["delta"].get("content", "") for e in rest
                )

        def keep_asking() -> tuple[int, int]:
            """(answered while the server took requests after the signal, refused later)."""
            answered = 0
            with httpx.Client(base_url=server.url, timeout=30) as client:
                while True:
                    after = fell.is_set()
                    response = client.post("/chat/completions", json=SHORT)
                    if response.status_code == 503:
                        assert response.json()["error"]["code"] == "draining"
                        assert 1 <= int(response.headers["retry-after"]) <= 60
                        return answered, 503
                    assert response.status_code == 200, response.text
                    assert response.json()["choices"][0]["message"]["content"] == "hello"
                    answered += after

        with ThreadPoolExecutor(9) as pool:
            streams = [pool.submit(stream, number) for number in range(8)]
            asking = pool.submit(keep_asking)
            begun.wait()
            server.signal(signal.SIGTERM)
            fell.set()
            assert httpx.get(server.url.replace("/v1", "/health")).status_code == 200
            for done in streams:
                assert done.result() == "word " * 30
            answered, last = asking.result()
        assert answered >= 1
        assert last == 503
        code, log = server.ended()
    assert code == 0, log
    assert "Traceback" not in log


def test_the_last_bytes_of_a_stream_bring_the_end_of_its_connection() -> None:
    """Its headers, sent before the signal, couldn't say that it closes. A client that looks at its
    connection before it asks again, as pools do, must see that however soon it does so: this one
    never sleeps, and its streams end one by one.
    """
    with ServerProcess(pace=0.002, propagation=30.0, max_sequences=40) as server:
        server.wait_ready()
        streams = [raw_stream(server.url, words=30 + number) for number in range(40)]
        for stream in streams:
            assert stream.recv(1) == b"H"
            stream.setblocking(False)
        server.signal(signal.SIGTERM)
        received = dict.fromkeys(streams, b"")
        seen = []
        end = time.monotonic() + 30
        while received and time.monotonic() < end:
            for stream in list(received):
                with contextlib.suppress(BlockingIOError):
                    received[stream] += stream.recv(65536)
                if received[stream].endswith(b"\n\r\n0\r\n\r\n"):
                    seen.append(ended(stream))
                    del received[stream]
        server.signal(signal.SIGINT)
        server.ended()
    assert seen == [True] * 40


def ended(stream: socket.socket) -> bool:
    with stream:
        try:
            return stream.recv(1) == b""
        except BlockingIOError:
            return False


def raw_stream(url: str, words: int) -> socket.socket:
    """A connection on which a stream has been asked for."""
    content = "say " + "word " * words + "."
    body = json.dumps({**LONG, "messages": [{"role": "user", "content": content}]}).encode()
    parts = urlsplit(url)
    assert parts.hostname
    stream = socket.create_connection((parts.hostname, parts.port), timeout=30)
    head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: server\r\nContent-Length: {len(body)}"
    stream.sendall(f"{head}\r\n\r\n".encode() + body)
    return stream


def test_readiness_falls_at_once_while_requests_are_taken() -> None:
    with ServerProcess(propagation=2.0) as server:
        server.wait_ready()
        root = server.url.removesuffix("/v1")
        assert httpx.get(f"{root}/ready").status_code == 200
        server.signal(signal.SIGTERM)
        end = time.monotonic() + 1.0
        while (ready := httpx.get(f"{root}/ready")).status_code != 503:
            assert time.monotonic() < end
        assert ready.json()["reason"] == "Draining"
        assert httpx.get(f"{root}/status").json()["phase"] == "draining"
        answer = ask(server.url, SHORT)
        assert answer.status_code == 200
        assert answer.headers["connection"] == "close"
        assert server.ended()[0] == 0


def test_interrupt_leaves_out_the_wait() -> None:
    with ServerProcess(propagation=30.0) as server:
        server.wait_ready()
        began = time.monotonic()
        server.signal(signal.SIGINT)
        assert server.ended()[0] == 0
        assert time.monotonic() - began < 5.0


def test_an_idle_kept_alive_connection_does_not_hold_the_server() -> None:
    with ServerProcess(propagation=0.2) as server, httpx.Client(base_url=server.url) as client:
        server.wait_ready()
        assert client.post("/chat/completions", json=SHORT).status_code == 200
        server.signal(signal.SIGTERM)
        assert server.ended()[0] == 0


def test_what_still_runs_at_the_timeout_ends_with_an_error_event() -> None:
    with ServerProcess(pace=0.05, propagation=0.1, drain_timeout=0.3) as server:
        server.wait_ready()
        with httpx.stream(
            "POST", f"{server.url}/chat/completions", json={**LONG, "ignore_eos": True}, timeout=30
        ) as response:
            incoming = events(response)
            next(incoming)
            server.signal(signal.SIGTERM)
            rest = list(incoming)
        assert json.loads(rest[-1])["error"]["code"] == "drain_timeout"
        assert "[DONE]" not in rest
        assert server.ended()[0] == 0


def test_a_second_signal_ends_at_once() -> None:
    with ServerProcess(pace=0.05, propagation=60.0) as server:
        server.wait_ready()
        with httpx.stream(
            "POST", f"{server.url}/chat/completions", json={**LONG, "ignore_eos": True}, timeout=30
        ) as response:
            incoming = events(response)
            next(incoming)
            server.signal(signal.SIGTERM)
            root = server.url.removesuffix("/v1")
            while httpx.get(f"{root}/ready").status_code != 503:
                pass
            server.signal(signal.SIGTERM)
            rest = list(incoming)
        assert "error" in json.loads(rest[-1])
        assert server.ended()[0] == 1


def test_the_engines_death_ends_streams_with_an_error_and_the_server_too(tmp_path) -> None:
    log = tmp_path / "termination-log"
    log.touch()
    with ServerProcess(pace=0.01, die_at=10, termination_log=str(log)) as server:
        server.wait_ready()
        with httpx.stream(
            "POST", f"{server.url}/chat/completions", json=LONG, timeout=30
        ) as response:
            rest = list(events(response))
        assert json.loads(rest[-1])["error"]["code"] == "engine_failed"
        assert "[DONE]" not in rest
        ready = httpx.get(f"{server.url.removesuffix('/v1')}/ready")
        assert ready.status_code == 503
        assert ready.json()["reason"] == "EngineFailed"
        code, _ = server.ended()
    assert code == 1
    assert json.loads(log.read_text()) == {
        "reason": "EngineFailed",
        "message": "killed by signal 9",
    }


def test_a_start_that_fails_says_why(tmp_path) -> None:
    log = tmp_path / "termination-log"
    log.touch()
    with ServerProcess(fail=True, termination_log=str(log)) as server:
        code, said = server.ended()
    assert code == 1
    assert "tensor 7 is cut short" in said
    assert json.loads(log.read_text())["reason"] == "ModelUnreadable"


@pytest.mark.parametrize("raised", ["FileNotFoundError", "KeyError"])
def test_whatever_ends_a_start_is_in_the_termination_log(tmp_path, raised: str) -> None:
    log = tmp_path / "termination-log"
    log.touch()
    with ServerProcess(raises=raised, termination_log=str(log)) as server:
        code, _ = server.ended()
    assert code == 1
    ended = json.loads(log.read_text())
    assert ended["reason"] == "EngineFailed"
    assert "no such thing" in ended["message"]


def test_status_and_health_answer_while_the_model_loads() -> None:
    with ServerProcess(slow=1.0) as server:
        root = server.url.removesuffix("/v1")
        with httpx.Client(base_url=root) as client:
            assert client.get("/health").status_code == 200
            while (status := client.get("/status").json())["model"]["bytes_done"] is None:
                assert status["phase"] == "loading"
            assert (status["model"]["bytes_done"], status["model"]["bytes_total"]) == (40, 100)
            ready = client.get("/ready")
            assert ready.status_code == 503
            assert ready.json()["reason"] == "Loading"
            refused = client.post("/v1/chat/completions", json=SHORT)
            assert refused.status_code == 503
            assert refused.json()["error"]["code"] == "model_loading"
            server.wait_ready()
            assert client.get("/ready").status_code == 200


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_while_loading_ends_the_server(number: int) -> None:
    with ServerProcess(slow=60.0) as server:
        httpx.get(f"{server.url.removesuffix('/v1')}/health")
        server.signal(number)
        assert server.ended()[0] == 0
