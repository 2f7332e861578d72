"""Queue, deadlines, cancellation: who waits, for how long, and what is left behind."""

from __future__ import annotations

import json
from concurrent.futures import Future, ThreadPoolExecutor

import httpx
import pytest
from fake_engine import FakeEngine
from served import Served


def small_engine() -> FakeEngine:
    return FakeEngine(max_sequences=1)


def held(served: Served) -> None:
    served.call(served.engine.hold)


def release(served: Served) -> None:
    served.call(served.engine.release)


def test_a_full_queue_answers_429_with_when_to_come_back() -> None:
    with Served(small_engine, max_sequences=1, queue=2) as served, ThreadPoolExecutor(3) as pool:
        held(served)
        waiting = [pool.submit(served.chat, "say hello.") for _ in range(3)]
        served.wait(lambda: served.engine.open == 3, "one would run and two wait")
        refused = served.chat("say hello.")
        assert refused.status_code == 429
        assert refused.json()["error"]["code"] == "queue_full"
        assert refused.json()["error"]["type"] == "rate_limit_error"
        assert 1 <= int(refused.headers["retry-after"]) <= 60
        release(served)
        assert [future.result().status_code for future in waiting] == [200] * 3
        assert served.chat("say hello.").status_code == 200
        counted = served.call(lambda: dict(served.service.counters.requests))
        assert (counted["stop"], counted["rejected"]) == (4, 1)


def test_who_waits_too_long_gets_503_and_leaves_nothing() -> None:
    with Served(small_engine, max_sequences=1, queue_timeout=0.2) as served:
        held(served)
        for stream in (False, True):
            response = served.chat("say hello.", stream=stream)
            assert response.status_code == 503
            assert response.json()["error"]["code"] == "queue_timeout"
            assert 1 <= int(response.headers["retry-after"]) <= 60
        served.assert_idle()
        assert served.call(lambda: served.service.counters.requests["timeout"]) == 2


def test_prompts_that_wait_behind_their_own_request_are_no_late_ones() -> None:
    """A request has left the queue with its first prompt; the others take the time they need."""
    with Served(
        lambda: FakeEngine(max_sequences=1, pace=0.02), max_sequences=1, queue_timeout=0.2
    ) as served:
        body = {"prompt": ["say " + "a" * 20 + "."] * 3}
        answer = served.post("/v1/completions", body)
        assert answer.status_code == 200, answer.text
        assert [each["text"] for each in answer.json()["choices"]] == ["a" * 20] * 3


def test_a_request_that_takes_too_long_ends_with_an_error() -> None:
    with Served(lambda: FakeEngine(pace=0.02), request_timeout=0.5) as served:
        whole = served.chat("say hello.", ignore_eos=True)
        assert whole.status_code == 504
        assert whole.json()["error"]["code"] == "request_timeout"
        assert whole.headers["x-should-retry"] == "false"
        streamed = served.chat("say hello.", ignore_eos=True, stream=True)
        assert streamed.status_code == 200
        assert '"code":"request_timeout"' in streamed.text
        assert "[DONE]" not in streamed.text
        served.assert_idle()


def test_a_client_that_goes_away_while_it_waits_frees_its_place() -> None:
    with Served(small_engine, max_sequences=1) as served, ThreadPoolExecutor(2) as pool:
        held(served)
        first: Future[httpx.Response] = pool.submit(served.chat, "say hello.")
        served.wait(lambda: served.engine.open == 1)
        for stream in (False, True):
            body = {
                "messages": [{"role": "user", "content": "say hello."}],
                "stream": stream,
            }
            with served.client() as client, pytest.raises(httpx.ReadTimeout):
                client.post("/v1/chat/completions", json=body, timeout=0.3)
            served.wait(lambda: served.engine.open == 1, "the second is cancelled")
        release(served)
        assert first.result().json()["choices"][0]["message"]["content"] == "hello"
        assert served.call(lambda: served.service.counters.requests["cancelled"]) == 2


def test_a_silent_stream_gets_comments() -> None:
    with Served(small_engine, max_sequences=1, ping=0.1) as served:
        held(served)
        body = {"messages": [{"role": "user", "content": "say hello."}], "stream": True}
        with (
            served.client() as client,
            client.stream("POST", "/v1/chat/completions", json=body) as response,
        ):
            lines = response.iter_lines()
            found = []
            while found.count(":") < 3:
                found.append(next(lines))
            release(served)
            rest = [line for line in lines if line.startswith("data: ")]
        assert rest[-1] == "data: [DONE]"
        events = [json.loads(line.removeprefix("data: ")) for line in rest[:-1]]
        assert "".join(e["choices"][0]["delta"].get("content", "") for e in events) == "hello"


def test_stamps_travel_as_comments() -> None:
    with Served(trace_stamps=True) as served:
        text = served.chat("say hello.", stream=True).text
        assert text.count(": stamp ") == 5


def test_min_tokens_hold_back_stop_strings() -> None:
    with Served() as served:
        response = served.chat("say ababab.", stop="ab", min_tokens=4)
        assert response.json()["choices"][0]["message"]["content"] == "abab"


def test_the_first_frame_is_on_the_wire_before_the_second_step() -> None:
    with Served() as served:

        def only_one_step() -> None:
            step = served.engine.step

            def once() -> None:
                served.engine.hold()
                step()

            served.engine.step = once  # type: ignore[method-assign]

        served.call(only_one_step)
        body = {"messages": [{"role": "user", "content": "say hello."}], "stream": True}
        with (
            served.client() as client,
            client.stream("POST", "/v1/chat/completions", json=body) as response,
        ):
            lines = (line for line in response.iter_lines() if line.startswith("data: "))
            deltas = [json.loads(next(lines)[6:])["choices"][0]["delta"] for _ in range(2)]
            assert deltas == [{"role": "assistant", "content": ""}, {"content": "h"}]
            assert served.call(lambda: served.engine.steps) == 1


def test_retry_after_follows_the_recent_rate() -> None:
    from flatwake_service.http.admission import UNKNOWN_RETRY, Admission

    admission = Admission(queue=64, max_sequences=1)
    assert admission.retry_after() == UNKNOWN_RETRY
    tickets = [admission.enter() for _ in range(20)]
    for ticket in tickets[:10]:
        ticket.start()
        ticket.leave()
        ticket.leave()
    assert (admission.waiting, admission.running) == (10, 0)
    assert 1 <= admission.retry_after() <= 60
