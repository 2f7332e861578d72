"""Response bodies in OpenAI's shapes. Streams write the same JSON by hand (`events`)."""

from __future__ import annotations

from typing import Literal

import msgspec

Finish = Literal["stop", "length"]

LOGPROB_FLOOR = -9999.0
"""What -inf (and NaN) become: JSON has no word for them, and OpenAI uses this."""


class TopLogprob(msgspec.Struct, frozen=True):
    token: str
    logprob: float
    bytes: list[int] | None


class TokenLogprob(msgspec.Struct, frozen=True):
    token: str
    logprob: float
    bytes: list[int] | None
    top_logprobs: list[TopLogprob]


class ChatLogprobs(msgspec.Struct, frozen=True):
    content: list[TokenLogprob]
    refusal: None = None


class CompletionLogprobs(msgspec.Struct, frozen=True):
    """Lists of one length. `text_offset` counts characters from the choice's start."""

    tokens: list[str]
    token_logprobs: list[float]
    top_logprobs: list[dict[str, float]] | None
    text_offset: list[int]


class PromptDetails(msgspec.Struct, frozen=True):
    cached_tokens: int = 0


class Usage(msgspec.Struct, frozen=True):
    """A prompt counts once, however many choices it has."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: PromptDetails = PromptDetails()


class AssistantMessage(msgspec.Struct, frozen=True):
    content: str
    role: Literal["assistant"] = "assistant"
    refusal: None = None


class ChatChoice(msgspec.Struct, frozen=True):
    index: int
    message: AssistantMessage
    logprobs: ChatLogprobs | None
    finish_reason: Finish


class ChatCompletion(msgspec.Struct, frozen=True):
    id: str
    created: int
    model: str
    choices: list[ChatChoice]
    usage: Usage
    object: Literal["chat.completion"] = "chat.completion"
    system_fingerprint: None = None


class Delta(msgspec.Struct, frozen=True, omit_defaults=True):
    role: Literal["assistant"] | None = None
    content: str | None = None


class ChunkChoice(msgspec.Struct, frozen=True):
    index: int
    delta: Delta
    logprobs: ChatLogprobs | None
    finish_reason: Finish | None


class ChatCompletionChunk(msgspec.Struct, frozen=True):
    """One event of a stream. The usage chunk's `choices` are empty."""

    id: str
    created: int
    model: str
    choices: list[ChunkChoice]
    usage: Usage | None = None
    object: Literal["chat.completion.chunk"] = "chat.completion.chunk"
    system_fingerprint: None = None


class CompletionChoice(msgspec.Struct, frozen=True):
    index: int
    text: str
    logprobs: CompletionLogprobs | None
    finish_reason: Finish | None


class Completion(msgspec.Struct, frozen=True):
    """A whole answer, or one event of a stream (whose usage is null but in the last)."""

    id: str
    created: int
    model: str
    choices: list[CompletionChoice]
    usage: Usage | None = None
    object: Literal["text_completion"] = "text_completion"
    system_fingerprint: None = None


class Model(msgspec.Struct, frozen=True):
    """A served name. `max_model_len`: tokens of context; null while the model loads."""

    id: str
    created: int
    max_model_len: int | None
    root: str
    object: Literal["model"] = "model"
    owned_by: str = "flatwake"


class ModelList(msgspec.Struct, frozen=True):
    data: list[Model]
    object: Literal["list"] = "list"


class Tokens(msgspec.Struct, frozen=True):
    """The answer of `/tokenize`."""

    count: int
    max_model_len: int
    tokens: list[int]


class Text(msgspec.Struct, frozen=True):
    """The answer of `/detokenize`."""

    prompt: str


class Health(msgspec.Struct, frozen=True):
    status: Literal["ok"] = "ok"


class Readiness(msgspec.Struct, frozen=True):
    """`reason` is one of the closed list that conditions use."""

    ready: bool
    reason: str
    message: str


class Version(msgspec.Struct, frozen=True):
    version: str
