"""A request's fields as the engine's sampling parameters."""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from typing import TypeVar

import msgspec

from flatwake_service.engine.messages import SamplingParams
from flatwake_service.http.errors import ApiError, Code
from flatwake_service.http.schema import (
    FIXED,
    MAX_STOP_IDS,
    ChatRequest,
    CompletionRequest,
    Sampling,
)
from flatwake_service.text import SamplingDefaults

N = TypeVar("N", int, float)

GREEDY_BELOW = 1e-5
"""Temperatures under this are greedy: dividing by them would overflow."""


@dataclass(frozen=True)
class Limits:
    """What the model and the server allow, and the model's own sampling. Tokens; `vocabulary` ids
    are the model's own.
    """

    context: int
    vocabulary: int
    eos_ids: tuple[int, ...]
    max_sequences: int
    sampling: SamplingDefaults


def sampling_params(request: Sampling, logprobs: int, limits: Limits) -> SamplingParams:
    """The parameters of choice 0; choice i has seed + i.

    Raises:
        ApiError: a value that the schema can't judge, such as a token id out of the vocabulary.
    """
    _check_fixed(request)
    if request.n > limits.max_sequences:
        raise _value("n", f"must be at most {limits.max_sequences} (maxSequences)", request.n)
    if request.best_of not in (None, request.n):
        raise ApiError(
            Code.UNSUPPORTED_VALUE,
            f"'best_of' must be the same as n ({request.n}), got {request.best_of}",
            param="best_of",
        )
    own = limits.sampling
    temperature = _first(request.temperature, own.temperature)
    top_p = _first(request.top_p, own.top_p)
    stop_ids = dict.fromkeys(check_ids(request.stop_token_ids, "stop_token_ids", limits.vocabulary))
    if not request.ignore_eos:
        stop_ids |= dict.fromkeys(limits.eos_ids)
    if len(stop_ids) > MAX_STOP_IDS:
        most = MAX_STOP_IDS - len(limits.eos_ids)
        got = len(request.stop_token_ids)
        raise _value("stop_token_ids", f"must have at most {most} elements here", got)
    return SamplingParams(
        temperature=temperature if temperature >= GREEDY_BELOW else 0.0,
        top_p=top_p or 1.0,
        top_k=1 if top_p == 0.0 else max(_first(request.top_k, own.top_k), 0),
        min_p=_first(request.min_p, own.min_p),
        repetition_penalty=_first(request.repetition_penalty, own.repetition_penalty),
        presence_penalty=request.presence_penalty,
        frequency_penalty=request.frequency_penalty,
        seed=secrets.randbits(63) if request.seed is None else request.seed,
        logprobs=logprobs,
        min_tokens=request.min_tokens,
        stop_ids=tuple(stop_ids),
        logit_bias=_bias(request.logit_bias, limits),
    )


def _first(asked: N | None, own: N) -> N:
    return own if asked is None else asked


def for_choice(params: SamplingParams, index: int) -> SamplingParams:
    """The same with seed + index, within 64 bits."""
    if index == 0:
        return params
    seed = (params.seed + index + 2**63) % 2**64 - 2**63
    return msgspec.structs.replace(params, seed=seed)


def stop_strings(request: Sampling) -> tuple[str, ...]:
    if request.stop is None:
        return ()
    return (request.stop,) if isinstance(request.stop, str) else tuple(request.stop)


def chat_logprobs(request: ChatRequest) -> int:
    """The number of top entries wanted a token; -1 for none at all."""
    if request.top_logprobs and not request.logprobs:
        raise ApiError(
            Code.INVALID_VALUE, "'top_logprobs' needs 'logprobs': true", param="top_logprobs"
        )
    return (request.top_logprobs or 0) if request.logprobs else -1


def completion_logprobs(request: CompletionRequest) -> int:
    if request.logprobs is not None and request.echo:
        raise ApiError(
            Code.UNSUPPORTED_VALUE, "'logprobs' with 'echo' isn't supported", param="echo"
        )
    return -1 if request.logprobs is None else request.logprobs


def max_tokens(request: Sampling, prompt: int, limits: Limits) -> int:
    """How many tokens may be generated after a prompt of this many.

    A prompt must leave room for one. `max_tokens` may ask for more than is left (generation then
    ends at the context, with "length"), but not for more than a context can ever hold.
    """
    asked, param = request.max_tokens, "max_tokens"
    if isinstance(request, ChatRequest) and request.max_completion_tokens is not None:
        if asked not in (None, request.max_completion_tokens):
            raise ApiError(
                Code.INVALID_VALUE,
                f"'max_tokens' ({asked}) and 'max_completion_tokens' "
                f"({request.max_completion_tokens}) differ; send one of them",
                param="max_completion_tokens",
            )
        asked, param = request.max_completion_tokens, "max_completion_tokens"
    context = limits.context
    if prompt == 0:
        raise ApiError(
            Code.INVALID_VALUE, "the prompt is empty: it has no tokens", param=_prompt(request)
        )
    if prompt >= context:
        raise ApiError(
            Code.CONTEXT_LENGTH_EXCEEDED,
            f"This model's maximum context length is {context} tokens, and your prompt has "
            f"{prompt} tokens; shorten it to at most {context - 1}",
            param=_prompt(request),
        )
    if asked is not None and asked > context:
        raise ApiError(
            Code.CONTEXT_LENGTH_EXCEEDED,
            f"This model's maximum context length is {context} tokens, and '{param}' asks for "
            f"{asked}; after your prompt of {prompt} tokens there is room for {context - prompt}",
            param=param,
        )
    room = min(asked or context, context - prompt)
    if request.min_tokens > room:
        raise _value("min_tokens", f"must be at most {room} here", request.min_tokens)
    return room


def check_ids(ids: list[int], param: str, vocabulary: int) -> list[int]:
    """The same ids. Raises ApiError: one of them isn't below `vocabulary`."""
    if max(ids, default=0) < vocabulary:
        return ids
    index = next(index for index, token in enumerate(ids) if token >= vocabulary)
    raise _value(f"{param}[{index}]", f"must be a token id from 0 to {vocabulary - 1}", ids[index])


def check_prompt(ids: list[int], param: str, limits: Limits) -> list[int]:
    """A text's ids, which may hold a token that its model has no row for. Raises ApiError."""
    if max(ids, default=0) < limits.vocabulary:
        return ids
    raise _value(
        param,
        f"must have no token that the model lacks (its ids end at {limits.vocabulary - 1})",
        max(ids),
    )


def _prompt(request: Sampling) -> str:
    return "messages" if isinstance(request, ChatRequest) else "prompt"


def _check_fixed(request: Sampling) -> None:
    for name, value in FIXED.items():
        if getattr(request, name, value) is not value:
            word, other = str(value).lower(), str(not value).lower()
            raise ApiError(
                Code.UNSUPPORTED_VALUE, f"'{name}' must be {word}, got {other}", param=name
            )


def _bias(bias: dict[str, float], limits: Limits) -> tuple[tuple[int, float], ...]:
    pairs = {}
    for name, value in bias.items():
        if not (name.isascii() and name.isdecimal() and len(name) < 10):
            raise _value("logit_bias", "must have token ids as its keys", name[:60])
        token = int(name)
        if token >= limits.vocabulary:
            last = limits.vocabulary - 1
            raise _value("logit_bias", f"must have token ids from 0 to {last} as its keys", name)
        pairs[token] = value
    return tuple(pairs.items())


def _value(param: str, must: str, got: object) -> ApiError:
    return ApiError(Code.INVALID_VALUE, f"'{param}' {must}, got {got}", param=param)
