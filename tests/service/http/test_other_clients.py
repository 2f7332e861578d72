"""Libraries that wrap OpenAI's API work with their default parameters."""

from __future__ import annotations

import warnings

import pytest
from served import Served

REPLY = "A computer is a machine that runs programs."
QUESTION = "What is a computer?"


@pytest.mark.filterwarnings("ignore")
def test_langchain(served: Served) -> None:
    from langchain_openai import ChatOpenAI, OpenAI

    chat = ChatOpenAI(model="fake", base_url=f"{served.url}/v1", api_key="none", max_retries=0)
    answer = chat.invoke(QUESTION)
    assert answer.content == REPLY
    assert answer.usage_metadata["output_tokens"] == len(REPLY) + 1
    chunks = list(chat.stream(QUESTION))
    assert "".join(chunk.content for chunk in chunks) == REPLY
    assert [text.content for text in chat.batch([QUESTION, "say hello."])] == [REPLY, "hello"]
    completion = OpenAI(model="fake", base_url=f"{served.url}/v1", api_key="none", max_retries=0)
    assert completion.invoke("say hello.") == "hello"
    assert "".join(completion.stream("say hello.")) == "hello"


@pytest.mark.filterwarnings("ignore")
def test_litellm(served: Served) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import litellm

    given = {"model": "openai/fake", "api_base": f"{served.url}/v1", "api_key": "none"}
    messages = [{"role": "user", "content": QUESTION}]
    answer = litellm.completion(messages=messages, **given)
    assert answer.choices[0].message.content == REPLY
    assert answer.usage.completion_tokens == len(REPLY) + 1
    chunks = litellm.completion(messages=messages, stream=True, **given)
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == REPLY
    with pytest.raises(litellm.ContextWindowExceededError):
        litellm.completion(messages=[{"role": "user", "content": "a" * 600}], **given)
