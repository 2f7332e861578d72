"""Request bodies. What is declared here works; everything else is refused by name.

null means absent: it is dropped before a body is read into one of these. Fields marked `NO_OP` are
accepted for the sake of clients that always send them, with the values that ask for nothing else
than what is done anyway.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

MAX_STOPS = 16
MAX_STOP_LENGTH = 1024
MAX_BIASES = 300
MAX_TOP_LOGPROBS = 20
MAX_STOP_IDS = 64
"""The model's own end tokens included. These three are what the engine has room for a sequence."""

UNSUPPORTED = "unsupported"
"""Key in a type's `extra`: a value outside it asks for something that isn't there."""


def _no_op(description: str, **limits: Any) -> Meta:
    return Meta(description=description, extra={UNSUPPORTED: True}, **limits)


_OWN = "absent: the model's own (generation_config.json), else"

Probability = Annotated[float, Meta(ge=0.0, le=1.0)]
Penalty = Annotated[float, Meta(ge=-2.0, le=2.0)]
Ignored = Annotated[str, _no_op("Accepted; changes nothing.")]
EmptyList = Annotated[list[Any], _no_op("Only an empty list.", max_length=0)]
Bias = Annotated[
    dict[str, Annotated[float, Meta(ge=-100.0, le=100.0)]],
    Meta(description="Token id to what is added to its logit.", max_length=MAX_BIASES),
]
Stop = Annotated[str, Meta(min_length=1, max_length=MAX_STOP_LENGTH)]
Stops = Annotated[list[Stop], Meta(max_length=MAX_STOPS)]
TokenId = Annotated[int, Meta(ge=0, le=2**31 - 1)]
Seed = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]
Count = Annotated[int, Meta(ge=1)]


class _Body(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    pass


class StreamOptions(_Body, kw_only=True):
    include_usage: bool = False
    include_obfuscation: Annotated[bool, _no_op("Accepted; nothing is ever padded.")] = False


class TextPart(_Body, kw_only=True, tag_field="type", tag="text"):
    """A part of a message's content; text is the only kind."""

    text: str


class TextFormat(_Body, kw_only=True, tag_field="type", tag="text"):
    """The only response format so far."""


class Message(_Body, kw_only=True):
    """One message of a conversation. `developer` is the same as `system`."""

    role: Literal["system", "developer", "user", "assistant"]
    content: str | list[TextPart] | None = None
    name: str | None = None
    refusal: Ignored | None = None
    annotations: EmptyList | None = None
    tool_calls: EmptyList | None = None


class Sampling(_Body, kw_only=True):
    """What both kinds of completion share."""

    model: Annotated[str, Meta(description="A served name; absent: the served model.")] | None = (
        None
    )
    max_tokens: (
        Annotated[Count, Meta(description="Most tokens to generate; absent: the context's rest.")]
        | None
    ) = None
    stream: bool = False
    stream_options: StreamOptions | None = None
    n: Annotated[int, Meta(ge=1, le=64, description="Choices, at most maxSequences.")] = 1
    seed: (
        Annotated[Seed, Meta(description="Choice i samples with seed + i; absent: random.")] | None
    ) = None
    stop: Stop | Stops | None = None
    temperature: (
        Annotated[float, Meta(ge=0.0, le=2.0, description=f"0 is greedy; {_OWN} 1.")] | None
    ) = None
    top_p: Annotated[Probability, Meta(description=f"{_OWN} 1.")] | None = None
    top_k: (
        Annotated[int, Meta(ge=-1, le=2**31 - 1, description=f"0 and -1 are off; {_OWN} off.")]
        | None
    ) = None
    min_p: Annotated[Probability, Meta(description=f"{_OWN} 0.")] | None = None
    presence_penalty: Penalty = 0.0
    frequency_penalty: Penalty = 0.0
    repetition_penalty: (
        Annotated[float, Meta(ge=0.01, le=100.0, description=f"{_OWN} 1.")] | None
    ) = None
    logit_bias: Bias = {}
    min_tokens: Annotated[int, Meta(ge=0)] = 0
    ignore_eos: bool = False
    stop_token_ids: Annotated[list[TokenId], Meta(max_length=MAX_STOP_IDS)] = []
    user: Ignored | None = None
    skip_special_tokens: Annotated[bool, _no_op("Only true.")] = True
    include_stop_str_in_output: Annotated[bool, _no_op("Only false.")] = False
    best_of: Annotated[int, _no_op("Only the value of n.", ge=1, le=64)] | None = None


class ChatRequest(Sampling, kw_only=True):
    """`POST /v1/chat/completions`."""

    messages: Annotated[list[Message], Meta(min_length=1)]
    max_completion_tokens: Annotated[Count, Meta(description="The same as max_tokens.")] | None = (
        None
    )
    logprobs: bool = False
    top_logprobs: Annotated[int, Meta(ge=0, le=MAX_TOP_LOGPROBS)] | None = None
    chat_template_kwargs: (
        Annotated[dict[str, Any], Meta(description="Variables for the chat template.")] | None
    ) = None
    metadata: Annotated[dict[str, Any], _no_op("Accepted; changes nothing.")] | None = None
    store: Annotated[bool, _no_op("Accepted; nothing is stored.")] | None = None
    service_tier: Ignored | None = None
    safety_identifier: Ignored | None = None
    prompt_cache_key: Ignored | None = None
    tools: EmptyList | None = None
    functions: EmptyList | None = None
    tool_choice: Annotated[Literal["none", "auto"], _no_op("No tools, no choice.")] | None = None
    function_call: Annotated[Literal["none", "auto"], _no_op("No tools, no choice.")] | None = None
    parallel_tool_calls: Annotated[bool, _no_op("Accepted; changes nothing.")] | None = None
    response_format: Annotated[TextFormat, _no_op('Only {"type": "text"}.')] | None = None
    modalities: Annotated[list[Literal["text"]], _no_op('Only ["text"].')] | None = None
    add_generation_prompt: Annotated[bool, _no_op("Only true.")] = True
    continue_final_message: Annotated[bool, _no_op("Only false.")] = False


class CompletionRequest(Sampling, kw_only=True):
    """`POST /v1/completions`. A list of prompts gives n choices for each, in their order."""

    prompt: Annotated[
        str | list[str | TokenId | list[TokenId]],
        Meta(description="Text, token ids, or a list of either."),
    ]
    logprobs: Annotated[int, Meta(ge=0, le=MAX_TOP_LOGPROBS)] | None = None
    echo: bool = False
    suffix: Annotated[str, _no_op("Only an empty string.", max_length=0)] | None = None
    add_special_tokens: bool = True


FIXED: dict[str, bool] = {
    "skip_special_tokens": True,
    "include_stop_str_in_output": False,
    "add_generation_prompt": True,
    "continue_final_message": False,
}
"""Fields of completions with the only value that is supported."""


class TokenizeRequest(_Body, kw_only=True):
    """`POST /tokenize`: either `prompt`, or `messages` as the chat template renders them."""

    model: str | None = None
    prompt: str | None = None
    messages: Annotated[list[Message], Meta(min_length=1)] | None = None
    add_special_tokens: bool = True
    add_generation_prompt: bool = True
    chat_template_kwargs: dict[str, Any] | None = None


class DetokenizeRequest(_Body, kw_only=True):
    """`POST /detokenize`."""

    model: str | None = None
    tokens: list[TokenId]
