"""Keys, origins, ids and logs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from fake_engine import FakeEngine
from served import Served

HELLO = {"messages": [{"role": "user", "content": "say hello."}]}
OPEN = ("/health", "/ready", "/status", "/metrics", "/version")


def bearer(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}


def test_keys_are_wanted_where_they_are_set(tmp_path: Path) -> None:
    (tmp_path / "one").write_text("sk-one\n")
    (tmp_path / "more").write_text("sk-two\nsk-three\n")
    (tmp_path / "..data").mkdir()
    with Served(api_keys_dir=tmp_path) as served, served.client() as client:
        for path in OPEN:
            assert client.get(path).status_code == 200, path
        for key in ("sk-one", "sk-two", "sk-three"):
            answer = client.post("/v1/chat/completions", json=HELLO, headers=bearer(key))
            assert answer.status_code == 200, key
        for headers in ({}, bearer("sk-on"), bearer("x"), {"Authorization": "sk-one"}):
            for path in ("/v1/chat/completions", "/v1/completions", "/tokenize", "/detokenize"):
                refused = client.post(path, json=HELLO, headers=headers)
                assert refused.status_code == 401, path
                assert refused.json()["error"]["code"] == "invalid_api_key"
                assert refused.headers["www-authenticate"] == "Bearer"
            assert client.get("/v1/models", headers=headers).status_code == 401


def test_a_rotated_key_counts_without_a_restart(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("old")
    with Served(api_keys_dir=tmp_path) as served, served.client() as client:
        assert client.get("/v1/models", headers=bearer("old")).status_code == 200
        (tmp_path / "key").write_text("new")
        served.call(served.service.keys.read)
        assert client.get("/v1/models", headers=bearer("new")).status_code == 200
        assert client.get("/v1/models", headers=bearer("old")).status_code == 401


@pytest.mark.parametrize("content", [None, "", "  \n", "two words"])
def test_a_folder_without_a_usable_key_is_closed_and_not_ready(
    tmp_path: Path, content: str | None
) -> None:
    if content is not None:
        (tmp_path / "key").write_text(content)
    folder = tmp_path if content is not None else tmp_path / "absent"
    with Served(api_keys_dir=folder) as served, served.client() as client:
        assert client.get("/v1/models", headers=bearer("x")).status_code == 401
        ready = client.get("/ready")
        assert (ready.status_code, ready.json()["reason"]) == (503, "KeysMissing")


def test_only_named_origins_may_call() -> None:
    with Served(cors_origins=("https://chat.example",)) as served, served.client() as client:
        asked = {
            "Origin": "https://chat.example",
            "Access-Control-Request-Method": "POST",
            "Access-Control-Request-Headers": "authorization,content-type",
        }
        preflight = client.options("/v1/chat/completions", headers=asked)
        assert preflight.status_code == 200
        assert preflight.headers["access-control-allow-origin"] == "https://chat.example"
        answer = client.post(
            "/v1/chat/completions", json=HELLO, headers={"Origin": "https://chat.example"}
        )
        assert answer.headers["access-control-allow-origin"] == "https://chat.example"
        foreign = client.post(
            "/v1/chat/completions", json=HELLO, headers={"Origin": "https://other.example"}
        )
        assert "access-control-allow-origin" not in foreign.headers


def test_probes_take_get_and_head(served: Served) -> None:
    with served.client() as client:
        for path in OPEN:
            assert client.get(path).status_code == 200, path
            head = client.head(path)
            assert (head.status_code, head.content) == (200, b""), path


def test_status_says_what_serves(served: Served) -> None:
    with served.client() as client:
        status = client.get("/status").json()
    assert status["phase"] == "ready"
    assert status["reason"] == "Serving"
    assert status["model"]["name"] == "fake"
    assert (status["context"], status["max_sequences"]) == (512, 8)
    assert status["pids"]["api"]


def test_a_request_keeps_its_id(served: Served) -> None:
    with served.client() as client:
        given = client.get("/health", headers={"X-Request-Id": "mine-1"})
        assert given.headers["x-request-id"] == "mine-1"
        made = client.get("/health", headers={"X-Request-Id": "not usable"})
        assert made.headers["x-request-id"] != "not usable"
        assert len(made.headers["x-request-id"]) == 32


def test_logs_say_much_but_no_words_of_anyone() -> None:
    with Served() as served:
        assert served.chat("say something secret.").status_code == 200
        served.post("/v1/chat/completions?x=1", {"secret": 1}, headers=bearer("sk-secret"))
        with served.client() as client:
            client.get("/metrics")
        lines = [json.loads(line) for line in served.logged.getvalue().splitlines()]
    assert len(lines) == 2
    assert all("secret" not in json.dumps(line) for line in lines)
    answered, refused = lines
    assert (answered["event"], answered["status"], answered["outcome"]) == ("request", 200, "stop")
    assert answered["generated_tokens"] == len("something secret") + 1
    assert (refused["status"], refused["code"]) == (400, "unknown_field")
    assert refused["outcome"] == "rejected"


def test_a_log_line_stays_one_line() -> None:
    import io

    from flatwake_service.http.log import Log

    out = io.StringIO()
    Log("text", out)("event", path='/a b\n"c"', none=None, yes=True, number=0.1)
    assert out.getvalue().count("\n") == 1
    assert r'path="/a b\n\"c\"" yes=true number=0.1' in out.getvalue()


def test_a_bug_is_a_500_and_one_line_of_the_log(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError("secret" * 2)

    with Served() as served:
        monkeypatch.setattr("flatwake_service.http.chat.sampling_params", broken)
        response = served.chat("say hello.")
        assert response.status_code == 500
        error = response.json()["error"]
        assert error["code"] == "internal_error"
        assert response.headers["x-request-id"] in error["message"]
    logged = served.logged.getvalue()
    assert "secretsecret" not in logged
    lines = [json.loads(line) for line in logged.splitlines()]
    (request,) = [line for line in lines if line["event"] == "request"]
    assert (request["status"], request["exception"]) == (500, "ZeroDivisionError")
    (bug,) = [line for line in lines if line["event"] == "bug"]
    assert "test_access.py" in bug["trace"]


def reduced(model_context: int, asked: int | None) -> str:
    """What a server says whose engine holds 512 tokens of context."""

    def engine() -> FakeEngine:
        return FakeEngine(context=512, model_context=model_context)

    with Served(engine, context_length=asked) as served, served.client() as client:
        ready = client.get("/ready")
        assert ready.status_code == 200
        status = client.get("/status").json()
        assert ready.json()["reason"] == status["reason"]
        return f"{status['reason']}: {status['message']}"


def test_a_context_that_memory_cut_short_is_said() -> None:
    said = reduced(model_context=8192, asked=4096)
    assert said.startswith("ContextReduced: ")
    assert "a context of 512 tokens, not 4096: the memory for KV holds no more" in said


def test_a_context_above_the_models_is_said_to_be_the_models_fault() -> None:
    said = reduced(model_context=512, asked=4096)
    assert said.startswith("ContextReduced: ")
    assert "a context of 512 tokens, not 4096: the model was made for no more" in said


def test_the_whole_of_what_the_decoder_serves_is_no_reduced_context() -> None:
    assert reduced(model_context=512, asked=None) == "Serving: serving fake"
