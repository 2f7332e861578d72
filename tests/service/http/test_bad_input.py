"""Bad input gets one clear error that names the field, and harms nobody else."""

from __future__ import annotations

import json
import socket
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from fake_engine import FakeEngine
from served import Served

HELLO = [{"role": "user", "content": "say hello."}]


def error(served: Served, body: Any, path: str = "/v1/chat/completions") -> dict[str, Any]:
    response = served.post(path, body)
    assert response.status_code == 400, response.text
    assert response.headers["x-request-id"]
    found = response.json()["error"]
    assert found["type"] == "invalid_request_error"
    return found


@pytest.mark.parametrize(
    ("fields", "code", "param", "said"),
    [
        ({"temprature": 1}, "unknown_field", "temprature", "did you mean 'temperature'?"),
        ({"best_off": 1}, "unknown_field", "best_off", "did you mean 'best_of'?"),
        ({"stream_options": {"usage": 1}}, "unknown_field", "stream_options.usage", "include_us"),
        ({"max_tokens": -5}, "invalid_value", "max_tokens", "at least 1, got -5"),
        ({"max_tokens": 0}, "invalid_value", "max_tokens", "at least 1, got 0"),
        ({"max_tokens": 10**9}, "context_length_exceeded", "max_tokens", "asks for 1000000000"),
        ({"max_tokens": 10**30}, "context_length_exceeded", "max_tokens", "context length is 512"),
        ({"max_tokens": "5"}, "invalid_type", "max_tokens", "an integer, got the string '5'"),
        ({"max_tokens": 5, "max_completion_tokens": 6}, "invalid_value", None, "differ"),
        ({"temperature": 2.5}, "invalid_value", "temperature", "at most 2, got 2.5"),
        ({"temperature": -1}, "invalid_value", "temperature", "at least 0, got -1"),
        ({"top_p": 1.5}, "invalid_value", "top_p", "at most 1"),
        ({"n": 9}, "invalid_value", "n", "at most 8 (maxSequences), got 9"),
        ({"n": 0}, "invalid_value", "n", "at least 1"),
        ({"n": True}, "invalid_type", "n", "an integer, got true"),
        ({"seed": 1.5}, "invalid_type", "seed", "an integer, got 1.5"),
        ({"seed": 2**70}, "invalid_value", "seed", "at most 9223372036854775807"),
        ({"stop": ""}, "invalid_value", "stop", "at least 1 character"),
        ({"stop": ["a"] * 17}, "invalid_value", "stop", "at most 16 elements"),
        ({"stop_token_ids": [258]}, "invalid_value", "stop_token_ids[0]", "from 0 to 257, got 258"),
        ({"stop_token_ids": list(range(64))}, "invalid_value", "stop_token_ids", "at most 63"),
        ({"logit_bias": {str(i): 1 for i in range(301)}}, "invalid_value", None, "at most 300"),
        ({"logit_bias": {"258": 1}}, "invalid_value", "logit_bias", "from 0 to 257"),
        ({"logit_bias": {"x": 1}}, "invalid_value", "logit_bias", "token ids as its keys"),
        ({"logit_bias": {"1": 101}}, "invalid_value", "logit_bias", "at most 100"),
        ({"top_logprobs": 2}, "invalid_value", "top_logprobs", "needs 'logprobs'"),
        ({"top_logprobs": 21, "logprobs": True}, "invalid_value", "top_logprobs", "at most 20"),
        ({"min_tokens": 600}, "invalid_value", "min_tokens", "at most"),
        ({"tools": [{"type": "function"}]}, "unsupported_value", "tools", "only an empty list"),
        ({"tool_choice": "required"}, "unsupported_value", "tool_choice", "'auto' or 'none'"),
        (
            {"response_format": {"type": "json_schema", "json_schema": {}}},
            "unsupported_value",
            "response_format.type",
            "must be 'text', got the string 'json_schema'",
        ),
        ({"best_of": 3}, "unsupported_value", "best_of", "same as n (1), got 3"),
        ({"skip_special_tokens": False}, "unsupported_value", "skip_special_tokens", "be true"),
        ({"messages": []}, "invalid_value", "messages", "at least 1 element"),
        ({"messages": "hi"}, "invalid_type", "messages", "a list, got the string 'hi'"),
        ({"messages": None}, "missing_field", "messages", "is missing"),
        (
            {"messages": [{"role": "tool", "content": "x"}]},
            "invalid_value",
            "messages[0].role",
            "got the string 'tool'",
        ),
        ({"messages": [{"role": "user"}]}, "missing_field", "messages[0].content", "is missing"),
        (
            {"messages": [{"role": "user", "content": [{"type": "image_url"}]}]},
            "unsupported_value",
            "messages[0].content[0].type",
            "must be 'text'",
        ),
        (
            {"messages": [{"role": "user", "content": "raise"}]},
            "chat_template_failed",
            "messages",
            "no such words here",
        ),
        (
            {"messages": [{"role": "user", "content": "loop"}]},
            "chat_template_failed",
            "messages",
            "template",
        ),
        (
            {"messages": [{"role": "user", "content": "a" * 600}]},
            "context_length_exceeded",
            "messages",
            "maximum context length is 512 tokens",
        ),
        ({"chat_template_kwargs": {"messages": 1}}, "invalid_value", None, "can't set 'messages'"),
    ],
)
def test_chat(
    served: Served, fields: dict[str, Any], code: str, param: str | None, said: str
) -> None:
    found = error(served, {"messages": HELLO, **fields})
    assert (found["code"], said in found["message"]) == (code, True), found
    if param is not None:
        assert found["param"] == param


@pytest.mark.parametrize(
    ("fields", "code", "said"),
    [
        ({}, "missing_field", "'prompt' is missing"),
        ({"prompt": ""}, "invalid_value", "empty"),
        ({"prompt": []}, "invalid_value", "empty"),
        ({"prompt": [[]]}, "invalid_value", "no tokens"),
        ({"prompt": ["a", 1]}, "invalid_type", "mixes"),
        ({"prompt": [1, 258]}, "invalid_value", "'prompt[1]' must be a token id from 0 to 257"),
        ({"prompt": [-1]}, "invalid_value", "at least 0, got -1"),
        ({"prompt": "a", "suffix": "b"}, "unsupported_value", "suffix"),
        ({"prompt": "a", "logprobs": 1, "echo": True}, "unsupported_value", "echo"),
        ({"prompt": "a", "logprobs": True}, "invalid_type", "an integer, got true"),
        ({"prompt": ["a"] * 65}, "invalid_value", "at most 64 prompts"),
        ({"prompt": ["a"] * 17, "n": 4}, "invalid_value", "at most 16 prompts with n = 4, got 17"),
        ({"prompt": "a" * 513}, "context_length_exceeded", "512 tokens, and your prompt has 513"),
    ],
)
def test_completion(served: Served, fields: dict[str, Any], code: str, said: str) -> None:
    found = error(served, fields, "/v1/completions")
    assert (found["code"], said in found["message"]) == (code, True), found


@pytest.mark.parametrize(
    ("body", "code", "said"),
    [
        (b"", "invalid_json", "empty"),
        (b"{", "invalid_json", "isn't JSON"),
        (b"[]", "invalid_type", "a JSON object, got a list"),
        (b'{"messages": NaN}', "invalid_json", "isn't JSON"),
        (b'{"temperature": 1e999}', "invalid_json", "isn't JSON"),
        (b'{"a": ' + b"[" * 100_000, "invalid_json", "nested too deeply"),
        (b'{"messages": "\xff"}', "invalid_json", "UTF-8"),
        (
            rb'{"messages": [{"role": "user", "content": "\ud800 alone"}]}',
            "invalid_text",
            "surrogate",
        ),
    ],
)
def test_bodies(served: Served, body: bytes, code: str, said: str) -> None:
    with served.client() as client:
        response = client.post("/v1/chat/completions", content=body)
    assert response.status_code == 400
    found = response.json()["error"]
    assert (found["code"], said in found["message"]) == (code, True), found


def test_unknown_model_lists_those_served(served: Served) -> None:
    response = served.chat("say hello.", model="gpt-4")
    assert response.status_code == 404
    found = response.json()["error"]
    assert found["code"] == "model_not_found"
    assert "'fake', 'other'" in found["message"]


def test_unknown_path_and_method(served: Served) -> None:
    with served.client() as client:
        absent, wrong = client.get("/v1/nothing"), client.put("/v1/chat/completions")
    assert (absent.status_code, absent.json()["error"]["code"]) == (404, "not_found")
    assert (wrong.status_code, wrong.json()["error"]["code"]) == (405, "method_not_allowed")
    assert wrong.headers["allow"] == "POST"


def test_what_asks_for_nothing_else_is_fine(served: Served) -> None:
    response = served.chat(
        "say hello.",
        tools=[],
        tool_choice="none",
        parallel_tool_calls=True,
        response_format={"type": "text"},
        user="someone",
        metadata={"a": "b"},
        store=False,
        service_tier="auto",
        n=1,
        best_of=1,
        logit_bias={},
        stop=None,
        top_logprobs=None,
        functions=None,
        absent_and_unknown=None,
        modalities=["text"],
        top_k=-1,
        max_tokens=10.0,
        model=None,
    )
    assert response.status_code == 200, response.text
    assert response.json()["choices"][0]["message"]["content"] == "hello"


def test_content_parts_developer_and_template_variables(served: Served) -> None:
    messages = [
        {"role": "developer", "content": "be brief"},
        {"role": "assistant", "content": None, "refusal": None, "tool_calls": [], "audio": None},
        {
            "role": "user",
            "content": [{"type": "text", "text": "say"}, {"type": "text", "text": "x."}],
        },
    ]
    body = {"messages": messages, "chat_template_kwargs": {"mood": "happy"}}
    assert served.post("/v1/chat/completions", body).status_code == 200
    ids = served.call(lambda: served.engine.submitted[-1].ids)
    assert bytes(ids).decode() == "[system]be brief[assistant][user]say\nx.[assistant]happy"


def test_a_token_that_the_model_has_no_row_for_is_refused() -> None:
    """A tokenizer may know more tokens than its model, padding for example."""
    with Served(lambda: FakeEngine(vocabulary=257)) as served:
        assert served.chat("say hello.").status_code == 200
        for path, body, param in (
            ("/v1/chat/completions", {"messages": [{"role": "user", "content": "<bos>"}]}, None),
            ("/v1/completions", {"prompt": "a <bos>"}, "prompt"),
            ("/v1/completions", {"prompt": [97, 257]}, "prompt[1]"),
            ("/v1/completions", {"prompt": "a", "logit_bias": {"257": 1}}, "logit_bias"),
        ):
            found = error(served, body, path)
            assert (found["code"], found["param"]) == ("invalid_value", param or "messages"), found
        whole = served.post("/detokenize", {"tokens": [97, 257]})
        assert whole.json()["prompt"] == "a<bos>"


@pytest.mark.parametrize(("temperature", "greedy"), [(0, True), (1e-7, True), (0.5, False)])
def test_tiny_temperatures_are_greedy(served: Served, temperature: float, greedy: bool) -> None:
    assert served.chat("say hello.", temperature=temperature).status_code == 200
    sampling = served.call(lambda: served.engine.submitted[-1].sampling)
    assert (sampling.temperature == 0.0) is greedy


def test_asking_for_more_than_is_left_ends_at_the_context(served: Served) -> None:
    response = served.chat("say " + "a" * 100 + ".", max_tokens=500, ignore_eos=True)
    assert response.status_code == 200
    assert response.json()["choices"][0]["finish_reason"] == "length"
    assert response.json()["usage"]["total_tokens"] == 512


def test_unknown_fields_can_be_ignored() -> None:
    with Served(unknown_fields="ignore") as served:
        messages = [{"role": "user", "content": "say hello.", "cache": {"x": 1}}]
        body = {"messages": messages, "guided_json": {"a": 1}, "stream_options": {"z": 1}}
        response = served.post("/v1/chat/completions", body)
        assert response.status_code == 200, response.text


def test_a_body_over_the_limit_is_refused_while_it_is_read() -> None:
    with Served(body_bytes=10_000) as served:
        response = served.chat("a" * 20_000)
        assert response.status_code == 413
        assert response.json()["error"]["code"] == "body_too_large"
        assert "at most 10000" in response.json()["error"]["message"]

        def chunks() -> Any:
            for _ in range(50):
                yield b" " * 1000

        with served.client() as client:
            response = client.post("/v1/chat/completions", content=chunks())
            assert response.status_code == 413
            # The connection is still usable.
            assert client.get("/health").status_code == 200


def test_an_expected_body_over_the_limit_is_not_even_read() -> None:
    with Served(body_bytes=1000) as served:
        host, port = served.url.removeprefix("http://").split(":")
        with socket.create_connection((host, int(port)), timeout=10) as connection:
            connection.sendall(
                b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999\r\n"
                b"Expect: 100-continue\r\n\r\n"
            )
            assert connection.recv(4096).startswith(b"HTTP/1.1 413")


@pytest.mark.parametrize(
    "data",
    [
        b"NONSENSE\r\n\r\n",
        b"GET / HTTP/1.1\r\nX: " + b"a" * 100_000,
        b"GET /" + b"a" * 100_000,
        b"POST /v1/completions HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
    ],
)
def test_what_is_no_request_is_refused_and_the_connection_closed(
    served: Served, data: bytes
) -> None:
    host, port = served.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=10) as connection:
        connection.sendall(data)
        answer = b""
        while part := connection.recv(4096):
            answer += part
    head, body = answer.split(b"\r\n\r\n", 1)
    assert head.startswith(b"HTTP/1.1 400")
    assert json.loads(body)["error"]["code"] == "invalid_http"


def test_a_body_that_never_comes_does_not_wait_for_ever() -> None:
    with Served(request_timeout=0.3) as served:
        host, port = served.url.removeprefix("http://").split(":")
        with socket.create_connection((host, int(port)), timeout=10) as connection:
            connection.sendall(
                b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{"
            )
            assert connection.recv(4096).startswith(b"HTTP/1.1 504")


@pytest.mark.parametrize("data", [b"", b"GET /health HTTP/1.1\r\nHo"])
def test_a_head_that_never_comes_does_not_wait_for_ever(
    data: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("flatwake_service.http.protocol.HEAD_SECONDS", 0.3)
    with Served() as served:
        host, port = served.url.removeprefix("http://").split(":")
        with socket.create_connection((host, int(port)), timeout=10) as connection:
            connection.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n" if data else b"")
            connection.sendall(data)
            answered = b""
            while part := connection.recv(4096):
                answered += part
            assert answered.startswith(b"HTTP/1.1 200") == bool(data)


def test_minus_infinity_becomes_a_number() -> None:
    from fake_engine import FakeEngine

    with Served(lambda: FakeEngine(scores=lambda token: float("-inf"))) as served:
        response = served.chat("say hi.", logprobs=True, top_logprobs=1)
        assert response.json()["choices"][0]["logprobs"]["content"][0]["logprob"] == -9999.0


def test_tokenize_and_detokenize(served: Served) -> None:
    found = served.post("/tokenize", {"prompt": "né"}).json()
    assert found == {"count": 3, "max_model_len": 512, "tokens": list("né".encode())}
    chat = served.post("/tokenize", {"messages": HELLO}).json()
    assert bytes(chat["tokens"]).decode() == "[user]say hello.[assistant]"
    assert served.post("/detokenize", {"tokens": found["tokens"]}).json() == {"prompt": "né"}
    assert error(served, {"tokens": [999]}, "/detokenize")["param"] == "tokens[0]"
    assert error(served, {}, "/tokenize")["code"] == "missing_field"


def test_no_request_asks_for_more_than_the_engine_has_room_for() -> None:
    from flatwake_service.engine import arrays, sampler
    from flatwake_service.http import schema

    assert schema.MAX_BIASES <= sampler.MAX_BIASES
    assert schema.MAX_STOP_IDS <= sampler.MAX_STOP_IDS
    assert schema.MAX_TOP_LOGPROBS <= arrays.TOP_LOGPROBS


def test_whatever_is_sent_harms_no_other_request() -> None:
    """All of the above, among four streams that must say what each says alone."""
    bad = [{"messages": HELLO, **case[0]} for case in test_chat.pytestmark[0].args[1]]
    bodies = [json.dumps(each).encode() for each in bad]
    bodies += [case[0] for case in test_bodies.pytestmark[0].args[1]]
    words = [f"stream {index} goes on" * 4 for index in range(4)]
    with Served(lambda: FakeEngine(pace=0.02)) as served:

        def stream(word: str) -> str:
            body = {"messages": [{"role": "user", "content": f"say {word}."}], "stream": True}
            answer = served.post("/v1/chat/completions", body)
            events = [json.loads(line[6:]) for line in answer.text.splitlines()[:-2] if line]
            return "".join(e["choices"][0]["delta"].get("content", "") for e in events)

        with ThreadPoolExecutor(4) as pool, served.client() as client:
            told = [pool.submit(stream, word) for word in words]
            served.wait(lambda: served.engine.running == 4)
            for body in bodies:
                assert client.post("/v1/chat/completions", content=body).status_code == 400
            assert [each.result() for each in told] == words
        served.assert_idle()
