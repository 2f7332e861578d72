"""SmolLM2 over sockets, with the clients that people use: what is promised, on the real thing."""

from __future__ import annotations

import json
import random
import signal
import threading
import time
import warnings
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import openai
import pytest
from command import Command, comes_to_rest
from flatwake_service.manifest.defaults import PROPAGATION_SECONDS

MODEL = "smollm2"
ASKED = "What is a computer?"
QUESTION = [{"role": "user", "content": ASKED}]


def serving(model: Path) -> Command:
    return Command(
        *("serve", "--model", str(model), "--served-name", MODEL, "--context-length", "512"),
        *("--host", "127.0.0.1", "--port", "0", "--backend", "cpu"),
    )


@pytest.fixture(scope="module")
def server(smollm2: Path) -> Iterator[Command]:
    with serving(smollm2) as command:
        command.endpoint()
        yield command
        command.signal(signal.SIGINT)
        assert command.ended() == 0, command.said


@pytest.fixture(scope="module")
def client(server: Command) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=server.endpoint(), api_key="none", max_retries=0) as made:
        yield made


def streamed(client: openai.OpenAI, **given: object) -> str:
    with client.chat.completions.create(model=MODEL, stream=True, **given) as stream:
        return "".join(c.choices[0].delta.content or "" for c in stream if c.choices)


def test_openais_client_streams_what_it_gets_whole(client: openai.OpenAI) -> None:
    given = {"messages": QUESTION, "max_tokens": 40, "temperature": 0}
    whole = client.chat.completions.create(model=MODEL, **given)
    assert "computer" in whole.choices[0].message.content
    assert whole.usage.completion_tokens == 40
    assert whole.usage.total_tokens == whole.usage.prompt_tokens + 40
    assert streamed(client, **given) == whole.choices[0].message.content
    with client.chat.completions.create(
        model=MODEL, stream=True, stream_options={"include_usage": True}, **given
    ) as stream:
        assert list(stream)[-1].usage == whole.usage


def test_openais_client_gets_completions_and_choices(client: openai.OpenAI) -> None:
    given = {"model": MODEL, "prompt": "A computer is", "max_tokens": 12, "seed": 3}
    answer = client.completions.create(**given)
    assert answer.usage.completion_tokens == 12
    assert answer.choices[0].text == client.completions.create(**given).choices[0].text
    both = client.chat.completions.create(
        model=MODEL, messages=QUESTION, n=2, seed=11, max_tokens=24
    )
    texts = [choice.message.content for choice in both.choices]
    assert texts[0] != texts[1], "each choice has a seed of its own"
    assert streamed(client, messages=QUESTION, seed=12, max_tokens=24) == texts[1]


def test_openais_client_gets_logprobs_that_explain_the_choice(client: openai.OpenAI) -> None:
    answer = client.chat.completions.create(
        model=MODEL, messages=QUESTION, temperature=0, max_tokens=16, logprobs=True, top_logprobs=3
    )
    scored = answer.choices[0].logprobs.content
    assert "".join(entry.token for entry in scored) == answer.choices[0].message.content
    for entry in scored:
        assert entry.token == entry.top_logprobs[0].token
        assert 0 >= entry.logprob == max(top.logprob for top in entry.top_logprobs)


def test_a_stop_string_ends_the_answer_before_it(client: openai.OpenAI) -> None:
    given = {"model": MODEL, "messages": QUESTION, "temperature": 0, "max_tokens": 40}
    text = client.chat.completions.create(**given).choices[0].message.content
    stop = text[25:32]
    assert stop not in text[:25]
    answer = client.chat.completions.create(stop=[stop], **given)
    assert answer.choices[0].message.content == text[:25]
    assert answer.choices[0].finish_reason == "stop"


def test_eight_streams_say_what_each_says_alone(client: openai.OpenAI) -> None:
    asked = [
        {
            "messages": [{"role": "user", "content": f"Tell me {number} facts about water."}],
            "temperature": 0,
            "max_tokens": 40,
        }
        for number in range(2, 10)
    ]
    alone = [streamed(client, **each) for each in asked]
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(lambda each: streamed(client, **each), asked)) == alone


def test_clients_that_leave_at_any_moment_leave_nothing(
    server: Command, client: openai.OpenAI
) -> None:
    seed = random.randrange(2**32)
    print("seed", seed)
    chance = random.Random(seed)

    def leave(moment: tuple[int, float]) -> None:
        events, seconds = moment
        with client.chat.completions.create(
            model=MODEL, messages=QUESTION, stream=True, max_tokens=200
        ) as stream:
            for _, _chunk in zip(range(events), stream, strict=False):
                pass
            time.sleep(seconds)

    moments = [(chance.randrange(0, 25), chance.uniform(0, 0.02)) for _ in range(200)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(leave, moments))
    comes_to_rest(server.endpoint())


@pytest.mark.filterwarnings("ignore")
def test_langchain_with_its_defaults(server: Command) -> None:
    from langchain_openai import ChatOpenAI

    chat = ChatOpenAI(model=MODEL, base_url=server.endpoint(), api_key="none", max_retries=0)
    answer = chat.invoke(ASKED)
    assert answer.content
    assert answer.usage_metadata["output_tokens"] > 0
    assert "".join(chunk.content for chunk in chat.stream(ASKED))
    assert all(each.content for each in chat.batch([ASKED, "What is water?"]))


@pytest.mark.filterwarnings("ignore")
def test_litellm_with_its_defaults(server: Command) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import litellm

    given = {"model": f"openai/{MODEL}", "api_base": server.endpoint(), "api_key": "none"}
    answer = litellm.completion(messages=QUESTION, **given)
    assert answer.choices[0].message.content
    chunks = litellm.completion(messages=QUESTION, stream=True, **given)
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks)


def test_a_server_that_ends_cuts_no_stream_and_loses_no_request(smollm2: Path) -> None:
    """Eight streams on kept connections, and a client without retries that keeps asking."""
    long = {
        "messages": QUESTION,
        "max_tokens": 200,
        "ignore_eos": True,
        "temperature": 0,
        "stream": True,
    }
    short = {"messages": QUESTION, "max_tokens": 2}
    with serving(smollm2) as server:
        endpoint = server.endpoint()
        begun = threading.Barrier(9)
        signalled: list[float] = []

        def stream(_: int) -> int:
            with httpx.Client(base_url=endpoint, timeout=120) as client:
                assert client.post("/chat/completions", json=short).status_code == 200
                with client.stream("POST", "/chat/completions", json=long) as response:
                    data = (x[6:] for x in response.iter_lines() if x.startswith("data: "))
                    received = [next(data)]
                    begun.wait()
                    received += data
                assert received.pop() == "[DONE]"
                assert json.loads(received[-1])["choices"][0]["finish_reason"] == "length"
                return len(received)

        def keep_asking() -> None:
            """Ask until it is refused, which is when Kubernetes has taken the pod off its lists: of
            what is sent until shortly before, everything is answered.
            """
            with httpx.Client(base_url=endpoint, timeout=120) as client:
                while True:
                    sent = time.monotonic()
                    try:
                        response = client.post("/chat/completions", json=short)
                    except httpx.TransportError:
                        # It took no more, and has ended with its last stream.
                        assert sent - signalled[0] >= PROPAGATION_SECONDS
                        return
                    if response.status_code == 503:
                        assert response.json()["error"]["code"] == "draining"
                        assert time.monotonic() - signalled[0] >= PROPAGATION_SECONDS
                        assert sent - signalled[0] >= PROPAGATION_SECONDS - 1
                        return
                    assert response.status_code == 200, response.text

        with ThreadPoolExecutor(9) as pool:
            streams = [pool.submit(stream, number) for number in range(8)]
            asking = pool.submit(keep_asking)
            begun.wait()
            signalled.append(time.monotonic())
            server.signal(signal.SIGTERM)
            assert all(each.result() > 2 for each in streams)
            asking.result()
        assert server.ended() == 0, server.said
