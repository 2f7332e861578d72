"""What the histograms of latency count: from a request's first byte until its tokens have left."""

from __future__ import annotations

import json
import socket
import threading
from contextlib import closing

import pytest
from fake_engine import FakeEngine
from prometheus_client.parser import text_string_to_metric_families
from served import Served

BODY = {"messages": [{"role": "user", "content": "say hello."}], "max_tokens": 4}


def sums(served: Served) -> tuple[float, int, float, int]:
    """Sum and count of the time to the first token, and of the time between tokens."""
    with served.client() as client:
        text = client.get("/metrics").text
    found = {s.name: s.value for f in text_string_to_metric_families(text) for s in f.samples}
    names = ("time_to_first_token_seconds", "inter_token_seconds")
    first, between = (
        (found[f"flatwake_{n}_sum"], int(found[f"flatwake_{n}_count"])) for n in names
    )
    return (*first, *between)


class Hasty(FakeEngine):
    """Its clock says that all tokens were read long ago."""

    def _advance(self, sequence, stamp: float) -> None:  # type: ignore[no-untyped-def]
        super()._advance(sequence, 0.0)


def test_a_streams_tokens_count_when_they_leave_and_not_when_they_were_read() -> None:
    with Served(lambda: Hasty(pace=0.05)) as served:
        with served.client() as client:
            answer = client.post("/v1/chat/completions", json=BODY | {"stream": True})
        assert answer.text.count('"content":"') == 5
        first, firsts, between, gaps = sums(served)
    assert (firsts, gaps) == (1, 3)
    assert first >= 0.05
    assert between == pytest.approx(0.15, abs=0.1)


def test_tokens_that_leave_together_share_their_time() -> None:
    """A character of three tokens is one event: no client can tell its tokens apart."""
    engine = FakeEngine(pace=0.02, reply="€".encode())
    with Served(lambda: engine) as served:
        with served.client() as client:
            fields = {"messages": [{"role": "user", "content": "x"}], "max_tokens": 6}
            answer = client.post("/v1/chat/completions", json=fields | {"stream": True})
        assert answer.text.count('"content":"€"') == 1
        first, firsts, between, gaps = sums(served)
    assert (firsts, gaps) == (1, 3)
    # Three tokens at 20 ms each, then the end token behind them.
    assert first >= 0.06
    assert between == pytest.approx(0.02, abs=0.05)


def test_a_request_arrives_with_its_first_byte() -> None:
    body = json.dumps(BODY | {"stream": True}).encode()
    head = b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"
    head += b"Content-Length: %d\r\n\r\n" % len(body)
    with Served() as served:
        host, port = served.url.removeprefix("http://").split(":")
        with closing(socket.create_connection((host, int(port)), timeout=10)) as connection:
            pause = threading.Event()
            for part in (head[:5], head[5:], body):
                connection.sendall(part)
                pause.wait(0.2)
            while connection.recv(1 << 16):
                pass
        first, firsts, _, _ = sums(served)
    assert firsts == 1
    assert 0.4 <= first < 2.0
