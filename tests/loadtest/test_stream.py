"""The streaming client sees what a user sees: first token, gaps, counts, refusals, breaks."""

from __future__ import annotations

import http.client
import json
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import pytest
from fake_servers import Start
from flatwake_loadtest.answer import Json
from flatwake_loadtest.metrics import Scrape
from flatwake_loadtest.prompts import fixed
from flatwake_loadtest.stream import Client

Connect = Callable[[str], Client]


@pytest.fixture
def connect() -> Iterator[Connect]:
    with ExitStack() as stack:
        yield lambda url: stack.enter_context(Client(url, timeout=30))


def body(tokens: int = 32, answer: int = 20, seed: int = 1, **extra: object) -> Json:
    return fixed(tokens, answer, seed).body("fake") | extra


def test_a_stream_is_timed_and_counted(start: Start, connect: Connect) -> None:
    url = start("--rate", "100", "--prefill", "0.002")
    answer = connect(url).chat(body(answer=30))
    assert answer.outcome == "length"
    assert answer.tokens == len(answer.stamps) == answer.usage_completion == 30
    assert answer.first is not None
    assert answer.usage_prompt is not None
    # The fake needs 2 ms for each token of the prompt.
    assert answer.first >= 0.002 * answer.usage_prompt
    assert sum(answer.gaps) / len(answer.gaps) == pytest.approx(0.01, rel=0.2)
    assert answer.seconds >= answer.stamps[-1]
    assert answer.usage_prompt is not None


def test_a_server_that_stamps_shows_how_long_a_token_took(start: Start, connect: Connect) -> None:
    answer = connect(start("--stamps")).chat(body(answer=9))
    assert len(answer.delays) == len(answer.stamps) == 9
    # The fake says that each was read 5 ms before it was sent.
    assert all(0.005 <= delay < 0.5 for delay in answer.delays)
    assert connect(start()).chat(body(answer=9)).delays == []


def test_the_clock_starts_when_the_request_is_sent(
    start: Start, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    client, slow = connect(start()), threading.Event()
    made = client._connect

    def late() -> http.client.HTTPConnection:
        slow.wait(0.5)
        return made()

    monkeypatch.setattr(client, "_connect", late)
    new, kept = (client.chat(body(answer=2)) for _ in range(2))
    assert new.complete
    assert kept.complete
    assert new.first is not None
    assert new.first < new.seconds < 0.5


def test_a_reader_that_comes_late_knows_by_how_much(start: Start, connect: Connect) -> None:
    client, busy = connect(start("--rate", "1000")), threading.Event()
    answer = client.chat(body(answer=9), on_event=lambda: busy.wait(0.1))
    assert answer.late_first is not None
    assert answer.late_last is not None
    # All nine had come in 9 ms; whether a read returned one of them or all is the kernel's matter.
    assert answer.stamps[-1] >= 0.1
    assert 0.09 <= answer.late_last <= answer.stamps[-1]
    assert answer.late_first < 0.09


def test_a_first_token_that_was_read_with_the_next_ones_is_known_to_be_doubtful(
    start: Start, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    client, busy = connect(start("--rate", "1000", "--prefill", "0")), threading.Event()
    asked = client._request

    def late(method: str, path: str, data: bytes | None) -> http.client.HTTPConnection:
        connection = asked(method, path, data)
        busy.wait(0.2)
        return connection

    monkeypatch.setattr(client, "_request", late)
    answer = client.chat(body(answer=9))
    assert answer.first is not None
    assert answer.late_first is not None
    # The newest of all nine came after 9 ms, the first one at any time after the request.
    assert answer.first >= 0.2
    assert answer.late_first < answer.first
    assert answer.late_first + answer.doubt_first == pytest.approx(answer.first)


def test_the_connection_is_kept_between_requests(steady_server: str, connect: Connect) -> None:
    client = connect(steady_server)
    assert client.chat(body(answer=2)).complete
    kept = client._connection
    assert client.chat(body(answer=2)).complete
    assert client._connection is kept


def test_logprobs_make_the_count_exact(steady_server: str, connect: Connect) -> None:
    answer = connect(steady_server).chat(body(answer=7, logprobs=True))
    assert answer.exact
    assert answer.tokens == 7


def test_an_aborted_stream_is_the_clients_own_doing(start: Start, connect: Connect) -> None:
    url = start("--rate", "200")
    client = connect(url)
    answer = client.chat(body(answer=500), abort_after=3)
    assert answer.outcome == "cancelled"
    assert len(answer.stamps) == 3
    early = client.chat(body(answer=500), abort_after=0)
    assert early.outcome == "cancelled"
    assert not early.stamps
    assert client.chat(body(answer=2)).complete


def test_a_refusal_carries_its_status_and_retry_after(start: Start, connect: Connect) -> None:
    url = start("--slots", "1", "--queue", "0", "--rate", "20")
    with ThreadPoolExecutor() as pool:
        running = pool.submit(connect(url).chat, body(answer=30))
        probe = connect(url)
        while Scrape.parse(probe.get("/metrics")[1].decode()).get("requests_running") != 1:
            assert not running.done()
        refused = connect(url).chat(body(answer=1))
        assert running.result().complete
    assert (refused.outcome, refused.status, refused.retry_after) == ("rejected", 429, "1")
    assert refused.error == "the queue is full"


def test_a_stream_that_breaks_is_no_answer(start: Start, connect: Connect) -> None:
    answer = connect(start("--drop", "5")).chat(body(answer=20))
    assert answer.outcome == "broken"
    assert not answer.complete
    assert len(answer.stamps) == 4


def test_a_bad_body_is_an_error_with_its_text(steady_server: str, connect: Connect) -> None:
    status, raw = connect(steady_server).post("/v1/chat/completions", b"{not json")
    assert status == 400
    assert json.loads(raw)["error"]["message"] == "malformed body"
    answer = connect(steady_server).chat(body(tokens=5000))
    assert answer.outcome == "error"
    assert answer.error is not None
    assert "maximum context length is 2048" in answer.error


def test_nothing_listening_is_unreachable(connect: Connect) -> None:
    answer = connect("http://127.0.0.1:9").chat(body())
    assert answer.outcome == "unreachable"
    assert answer.error is not None


def test_an_address_that_is_none_is_refused() -> None:
    with pytest.raises(ValueError, match="no http"):
        Client("localhost:8000")


def test_metrics_are_read_by_name_and_label() -> None:
    scrape = Scrape.parse(
        "# HELP flatwake_x y\n"
        'flatwake_memory_bytes{process="api",kind="rss_anon"} 1.5e6\n'
        'flatwake_requests_total{outcome="stop"} 3\nflatwake_requests_total{outcome="length"} 4\n'
        "vllm:num_requests_waiting 2\nflatwake_engine_up 1 1700000000\n"
    )
    assert scrape.get("memory_bytes", kind="rss_anon", process="api") == 1.5e6
    assert scrape.total("requests_total") == 7
    assert scrape.by("requests_total", "outcome") == {"stop": 3, "length": 4}
    assert scrape.get("engine_up") == 1
    assert scrape.total("nothing") is None
    assert not Scrape.parse("")
