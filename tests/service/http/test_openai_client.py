"""OpenAI's own client gets what it expects from the real thing."""

from __future__ import annotations

import random
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import openai
import pytest
from served import Served

REPLY = "A computer is a machine that runs programs."
QUESTION = [{"role": "user", "content": "What is a computer?"}]


@pytest.fixture(scope="module")
def client(served: Served) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{served.url}/v1", api_key="none", max_retries=0) as made:
        yield made


def test_chat(client: openai.OpenAI) -> None:
    answer = client.chat.completions.create(model="fake", messages=QUESTION)
    choice = answer.choices[0]
    assert (choice.message.role, choice.message.content) == ("assistant", REPLY)
    assert choice.finish_reason == "stop"
    assert choice.logprobs is None
    assert answer.object == "chat.completion"
    assert answer.model == "fake"
    assert answer.usage.completion_tokens == len(REPLY) + 1
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + len(REPLY) + 1
    assert answer.usage.prompt_tokens_details.cached_tokens == 0


def test_chat_stream(client: openai.OpenAI) -> None:
    with client.chat.completions.create(model="fake", messages=QUESTION, stream=True) as stream:
        chunks = list(stream)
    assert chunks[0].choices[0].delta.role == "assistant"
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == REPLY
    assert [c.choices[0].finish_reason for c in chunks if c.choices[0].finish_reason] == ["stop"]
    assert chunks[-1].choices[0].finish_reason == "stop"
    assert len({chunk.id for chunk in chunks}) == 1
    assert all(chunk.usage is None for chunk in chunks)


def test_usage_is_one_last_chunk(client: openai.OpenAI) -> None:
    with client.chat.completions.create(
        model="fake", messages=QUESTION, stream=True, stream_options={"include_usage": True}
    ) as stream:
        chunks = list(stream)
    assert chunks[-1].choices == []
    assert chunks[-1].usage.completion_tokens == len(REPLY) + 1
    assert all(chunk.usage is None for chunk in chunks[:-1])


def test_completion(client: openai.OpenAI) -> None:
    answer = client.completions.create(model="fake", prompt="say hello there.", max_tokens=5)
    assert answer.choices[0].text == "hello"
    assert answer.choices[0].finish_reason == "length"
    assert answer.usage.completion_tokens == 5


def test_completion_stream(client: openai.OpenAI) -> None:
    with client.completions.create(
        model="fake", prompt="say hello.", stream=True, stream_options={"include_usage": True}
    ) as stream:
        chunks = list(stream)
    assert "".join(c.choices[0].text for c in chunks if c.choices) == "hello"
    assert chunks[-2].choices[0].finish_reason == "stop"
    assert chunks[-1].usage.completion_tokens == len("hello") + 1


def test_several_prompts_give_choices_in_their_order(client: openai.OpenAI) -> None:
    answer = client.completions.create(model="fake", prompt=["say one.", "say two."], n=2)
    assert [c.text for c in answer.choices] == ["one", "one", "two", "two"]
    assert [c.index for c in answer.choices] == [0, 1, 2, 3]
    assert answer.usage.prompt_tokens == 2 * (len("say one."))


def test_token_ids_as_prompt_and_echo(client: openai.OpenAI) -> None:
    ids = list(b"say hi.")
    answer = client.completions.create(model="fake", prompt=ids, echo=True)
    assert answer.choices[0].text == "say hi.hi"


def test_n(client: openai.OpenAI, served: Served) -> None:
    answer = client.chat.completions.create(model="fake", messages=QUESTION, n=2, seed=7)
    assert [choice.index for choice in answer.choices] == [0, 1]
    assert [choice.message.content for choice in answer.choices] == [REPLY, REPLY]
    assert answer.usage.completion_tokens == 2 * (len(REPLY) + 1)
    first, second = served.call(lambda: served.engine.submitted[-2:])
    assert (first.sampling.seed, second.sampling.seed) == (7, 8)
    assert first.group == second.group


def test_n_streams(client: openai.OpenAI) -> None:
    with client.chat.completions.create(
        model="fake", messages=QUESTION, n=3, stream=True
    ) as stream:
        texts, finishes = ["", "", ""], []
        for chunk in stream:
            for choice in chunk.choices:
                texts[choice.index] += choice.delta.content or ""
                finishes += [choice.index] if choice.finish_reason else []
    assert texts == [REPLY] * 3
    assert sorted(finishes) == [0, 1, 2]


@pytest.mark.parametrize("stream", [False, True])
def test_chat_logprobs(client: openai.OpenAI, stream: bool) -> None:
    answer = client.chat.completions.create(
        model="fake",
        messages=[{"role": "user", "content": "say né."}],
        logprobs=True,
        top_logprobs=2,
        stream=stream,
    )
    entries = []
    if stream:
        with answer:
            for chunk in answer:
                scores = chunk.choices[0].logprobs
                entries += scores.content if scores else []
    else:
        entries = answer.choices[0].logprobs.content
    assert b"".join(bytes(entry.bytes) for entry in entries).decode() == "né"
    assert [entry.logprob for entry in entries] == [-0.25] * 3
    assert [top.logprob for top in entries[0].top_logprobs] == [-0.25, -1.25]
    assert entries[0].token == "n"


def test_completion_logprobs(client: openai.OpenAI) -> None:
    answer = client.completions.create(model="fake", prompt="say abc.", logprobs=1)
    scores = answer.choices[0].logprobs
    assert scores.tokens == ["a", "b", "c"]
    assert scores.token_logprobs == [-0.25] * 3
    assert scores.top_logprobs == [{"a": -0.25}, {"b": -0.25}, {"c": -0.25}]
    assert scores.text_offset == [0, 1, 2]


@pytest.mark.parametrize("stream", [False, True])
def test_stop_string(client: openai.OpenAI, served: Served, stream: bool) -> None:
    answer = client.chat.completions.create(
        model="fake", messages=QUESTION, stop=["mach", "xyz"], stream=stream
    )
    if stream:
        with answer:
            chunks = list(answer)
        text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks)
        finish = chunks[-1].choices[0].finish_reason
    else:
        text, finish = answer.choices[0].message.content, answer.choices[0].finish_reason
    assert (text, finish) == ("A computer is a ", "stop")
    served.assert_idle()


def test_models(client: openai.OpenAI) -> None:
    assert [model.id for model in client.models.list()] == ["fake", "other"]
    assert client.models.retrieve("other").id == "other"
    with pytest.raises(openai.NotFoundError) as caught:
        client.models.retrieve("gpt-4/mini")
    assert caught.value.code == "model_not_found"


def test_eight_streams_at_once_cross_nothing(client: openai.OpenAI) -> None:
    def one(number: int) -> tuple[str, str]:
        word = f"codeword-{number}-" * 8
        messages = [{"role": "user", "content": f"say {word}."}]
        with client.chat.completions.create(model="fake", messages=messages, stream=True) as stream:
            return word, "".join(c.choices[0].delta.content or "" for c in stream)

    with ThreadPoolExecutor(8) as pool:
        for word, text in pool.map(one, range(32)):
            assert text == word


def test_clients_that_go_away_leave_nothing() -> None:
    seed = random.randrange(2**32)
    print("seed", seed)
    chance = random.Random(seed)
    with Served() as served:
        served.call(lambda: setattr(served.engine, "pace", 0.001))
        with openai.OpenAI(base_url=f"{served.url}/v1", api_key="none", max_retries=0) as client:

            def one(moments: int) -> int:
                with client.chat.completions.create(
                    model="fake", messages=QUESTION, stream=True
                ) as stream:
                    for _, _chunk in zip(range(moments), stream, strict=False):
                        pass
                return moments

            with ThreadPoolExecutor(8) as pool:
                taken = list(pool.map(one, [chance.randrange(0, 40) for _ in range(200)]))
        assert len(taken) == 200
        served.assert_idle()
        outcomes = served.call(lambda: dict(served.service.counters.requests))
        assert outcomes["cancelled"] > 100
        assert sum(outcomes.values()) == 200
