"""`flatwake serve` over a tiny real model and the real engine, as users run it."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import openai
import pytest
from command import Command, comes_to_rest, used_blocks
from flatwake_service.cli import main as cli
from flatwake_service.cli import serve
from flatwake_service.errors import PortInUse
from flatwake_service.http import listener as sockets
from flatwake_service.manifest import InferenceServer, Place, serve_arguments
from tiny_models import write_tiny
from typer.main import get_command

QUESTION = [{"role": "user", "content": "What is a computer?"}]
ANY_PORT = ("--host", "127.0.0.1", "--port", "0", "--backend", "reference")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny(tmp_path_factory.mktemp("model"), "qwen2")


@pytest.fixture(scope="module")
def server(model: Path) -> Iterator[Command]:
    arguments = ("--model", str(model), "--context-length", "256", *ANY_PORT)
    with Command("serve", *arguments) as command:
        command.endpoint()
        yield command
        command.signal(signal.SIGINT)
        assert command.ended() == 0, command.said


def follow(endpoint: str, body: dict[str, object]) -> list[str]:
    """The data of a stream's events."""
    with httpx.stream("POST", f"{endpoint}/chat/completions", json=body, timeout=60) as response:
        assert response.status_code == 200
        return [line[6:] for line in response.iter_lines() if line.startswith("data: ")]


def test_openais_client(server: Command) -> None:
    with openai.OpenAI(base_url=server.endpoint(), api_key="none", max_retries=0) as client:
        given = {"model": client.models.list().data[0].id, "messages": QUESTION, "seed": 1}
        whole = client.chat.completions.create(max_tokens=20, **given)
        with client.chat.completions.create(max_tokens=20, stream=True, **given) as stream:
            streamed = "".join(c.choices[0].delta.content or "" for c in stream)
        assert whole.choices[0].message.content == streamed
        assert whole.usage.completion_tokens == 20
        scored = client.chat.completions.create(
            max_tokens=3, logprobs=True, top_logprobs=2, temperature=0, n=2, **given
        )
        assert [len(c.logprobs.content) for c in scored.choices] == [3, 3]
        assert scored.choices[0].message.content == scored.choices[1].message.content
        first = scored.choices[0].logprobs.content[0]
        assert first.logprob == first.top_logprobs[0].logprob >= first.top_logprobs[1].logprob
    assert used_blocks(server.endpoint()) == 0


def test_neither_process_knows_torch(server: Command) -> None:
    status = httpx.get(f"{server.endpoint().removesuffix('/v1')}/status").json()
    for process, known in (("api", "tokenizers"), ("engine", "numpy")):
        mapped = Path(f"/proc/{status['pids'][process]}/maps").read_text()
        assert known in mapped
        assert "torch" not in mapped


def test_clients_that_go_away_at_any_moment_leave_no_block(server: Command) -> None:
    seed = random.randrange(2**32)
    print("seed", seed)
    chance = random.Random(seed)
    url = f"{server.endpoint()}/chat/completions"

    def leave(moment: float) -> None:
        body = {"messages": QUESTION, "max_tokens": 200, "stream": True, "ignore_eos": True}
        with contextlib.suppress(httpx.TimeoutException):
            # The client gives up after so many seconds: while it waits, prefills or streams.
            httpx.post(url, json=body, timeout=moment)

    with ThreadPoolExecutor(16) as pool:
        list(pool.map(leave, [chance.uniform(0.001, 0.1) for _ in range(200)]))
    comes_to_rest(server.endpoint())


def test_eight_streams_say_what_each_would_say_alone(server: Command) -> None:
    bodies: list[dict[str, object]] = [
        {
            "messages": [{"role": "user", "content": f"Count to {number}."}],
            "max_tokens": 30,
            "seed": number,
            "stream": True,
        }
        for number in range(8)
    ]
    alone = [answer(server.endpoint(), body) for body in bodies]
    with ThreadPoolExecutor(8) as pool:
        together = list(pool.map(lambda body: answer(server.endpoint(), body), bodies))
    assert together == alone
    assert len(set(alone)) > 1


def answer(endpoint: str, body: dict[str, object]) -> str:
    events = follow(endpoint, body)
    assert events.pop() == "[DONE]"
    return "".join(json.loads(e)["choices"][0]["delta"].get("content", "") for e in events)


def test_a_port_in_use_is_one_clear_error(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        arguments = ("serve", "--model", "m", "--host", "127.0.0.1", "--port", port)
        assert cli.main(arguments) == 1
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert f"can't listen on 127.0.0.1 port {port}: address already in use" in said
    assert "--port" in said


def test_an_engine_that_is_killed_ends_streams_and_the_server(model: Path) -> None:
    arguments = ("--model", str(model), *ANY_PORT)
    with Command("serve", *arguments) as command:
        endpoint, engine = command.endpoint(), command.engine()
        body = {"messages": QUESTION, "stream": True, "ignore_eos": True}
        url = f"{endpoint}/chat/completions"
        with httpx.stream("POST", url, json=body, timeout=60) as response:
            lines = (line[6:] for line in response.iter_lines() if line.startswith("data: "))
            next(lines), next(lines)
            os.kill(engine, signal.SIGKILL)
            killed = time.monotonic()
            ready = httpx.get(f"{endpoint.removesuffix('/v1')}/ready")
            while ready.status_code == 200:
                ready = httpx.get(f"{endpoint.removesuffix('/v1')}/ready")
            assert time.monotonic() - killed < 1.0
            rest = list(lines)
        assert json.loads(rest[-1])["error"]["code"] == "engine_failed"
        assert "[DONE]" not in rest
        assert command.ended() == 1
        assert "SIGKILL" in command.said


def test_an_engine_that_hangs_is_ended_after_the_step_timeout(model: Path) -> None:
    arguments = ("--model", str(model), "--step-timeout", "1s", *ANY_PORT)
    with Command("serve", *arguments) as command:
        endpoint, engine = command.endpoint(), command.engine()
        body = {"messages": QUESTION, "max_tokens": 60, "stream": True, "ignore_eos": True}
        os.kill(engine, signal.SIGSTOP)
        rest = follow_until_end(endpoint, body)
        assert json.loads(rest)["error"]["code"] == "engine_failed"
        assert command.ended() == 1
        assert "device hung" in command.said


def follow_until_end(endpoint: str, body: dict[str, object]) -> str:
    """What a stream that never got its first token is answered with."""
    return httpx.post(f"{endpoint}/chat/completions", json=body, timeout=60).text


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--model", "m", "--queue-timeout", "5"), "is no duration"),
        (("--model", "m", "--body-bytes", "many"), "is no quantity"),
        (("--model", "m", "--prefill-tokens", "100"), "multiple of 64"),
        (("--model", "m", "--prefill-tokens", "8256"), "less than or equal to 8192"),
        (("--model", "m", "--step-timeout", "0s"), "more than 0s"),
        (("--model", "m", "--request-timeout", "0ms"), "more than 0s"),
        (("--model", "m", "--startup-timeout", "9s"), "at least 10s"),
        (("--model", "m", "--body-bytes", "1000"), "at least 1Ki"),
        (("--model", "m", "--context-length", "15"), "greater than or equal to 16"),
        (("--model", "m", "--kv-memory-fraction", "0.99"), "less than or equal to 0.95"),
        (("--model", "m", "--queue", "0"), "greater than or equal to 1"),
        (("--model", "m", "--max-sequences", "65"), "less than or equal to"),
        (("--model", "m", "--backend", "tpu"), "tpu"),
        ((), "--model"),
    ],
)
def test_bad_arguments_end_with_2(
    arguments: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(["serve", *arguments])
    assert ended.value.code == 2
    assert said in " ".join(capsys.readouterr().err.replace("│", " ").split())


def test_a_model_that_is_not_there_ends_with_its_reason(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(["serve", "--model", "/nonexistent.gguf", *ANY_PORT])
    assert ended.value.code == 1
    assert "reason=ModelMissing" in capsys.readouterr().err


def test_an_address_that_is_not_ours() -> None:
    with pytest.raises(PortInUse, match=r"can't listen on 192\.0\.2\.1 port 1"):
        sockets.bind("192.0.2.1", 1)


def test_serve_takes_every_argument_that_a_manifest_can_give() -> None:
    """Operator and `flatwake up` build their arguments from one function; serve knows them all."""
    spec = {
        "model": {"source": "file:///m", "aliases": ["a", "b"]},
        "accelerator": {"backend": "Cpu"},
        "engine": {
            "maxSequences": 4,
            "contextLength": 1024,
            "prefillTokens": 128,
            "kvCache": {"memoryFraction": 0.5, "dtype": "Float16"},
            "graphs": "Off",
        },
        "limits": {
            "queue": 1,
            "queueTimeout": "1s",
            "requestTimeout": "2s",
            "stepTimeout": "3s",
            "bodyBytes": "1Mi",
            "drainTimeout": "4s",
        },
        "startupTimeout": "5m",
        "access": {"corsOrigins": ["https://a.example"]},
    }
    document = {
        "apiVersion": "flatwake.dev/v1alpha1",
        "kind": "InferenceServer",
        "metadata": {"name": "tiny"},
        "spec": spec,
    }
    place = Place("/m", host="::", port=1, api_keys_dir="/k", chat_template="/t")
    arguments = serve_arguments(InferenceServer.model_validate(document), place)
    assert len([word for word in arguments if word.startswith("--")]) == 23
    given = get_command(serve.app).make_context("serve", list(arguments)).params
    assert given["alias"] == ["a", "b"]
    assert given["kv_dtype"] == "float16"
    assert (given["queue_timeout"], given["startup_timeout"]) == (1.0, 300.0)
    assert given["body_bytes"] == 1 << 20
