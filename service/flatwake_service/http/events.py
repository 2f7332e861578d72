"""Server-sent events of a stream. What is the same in all of them is encoded once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import msgspec

from flatwake_service.http.errors import ApiError
from flatwake_service.http.logprobs import Scored, chat_logprobs, completion_logprobs
from flatwake_service.http.responses import Finish, Usage
from flatwake_service.text import Tokenizer

DONE = b"data: [DONE]\n\n"
PING = b":\n\n"

_json = msgspec.json.Encoder().encode


def error_event(error: ApiError) -> bytes:
    return b"data: " + error.encode() + b"\n\n"


def stamp_comment(stamp: float) -> bytes:
    """When the engine read the tokens that follow: CLOCK_MONOTONIC seconds, as a comment."""
    return b": stamp %.6f\n\n" % stamp


class Events(Protocol):
    """The events of one stream, but for the error event and the end."""

    def opening(self) -> bytes: ...

    def text(self, index: int, text: str, scored: Sequence[Scored]) -> bytes: ...

    def finish(self, index: int, reason: Finish) -> bytes: ...

    def usage(self, usage: Usage) -> bytes: ...


class _Frame:
    """The fields around `choices`, which every event of a stream repeats."""

    def __init__(self, kind: str, request: str, created: int, model: str, usage: bool) -> None:
        fields = {"id": request, "object": kind, "created": created, "model": model}
        self.head = b"data: " + _json(fields)[:-1] + b',"system_fingerprint":null,"choices":['
        self.tail = b'],"usage":null}\n\n' if usage else b"]}\n\n"

    def usage(self, usage: Usage) -> bytes:
        return self.head + b'],"usage":' + _json(usage) + b"}\n\n"


class ChatEvents:
    """`chat.completion.chunk`s. `scores`: whether log probabilities were asked for."""

    def __init__(
        self,
        request: str,
        created: int,
        model: str,
        *,
        choices: int,
        usage: bool,
        scores: bool,
        tokenizer: Tokenizer,
    ) -> None:
        frame = self._frame = _Frame("chat.completion.chunk", request, created, model, usage)
        self._scores = scores
        self._tokenizer = tokenizer
        self._heads = [
            frame.head + b'{"index":%d,"delta":{"content":' % index for index in range(choices)
        ]
        self._no_scores = b'},"logprobs":null,"finish_reason":null}' + frame.tail
        self._after_scores = b',"finish_reason":null}' + frame.tail

    def opening(self) -> bytes:
        """The role, once a choice."""
        role = b'"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}'
        return b"".join(
            b'%b{"index":%d,%b%b' % (self._frame.head, index, role, self._frame.tail)
            for index in range(len(self._heads))
        )

    def text(self, index: int, text: str, scored: Sequence[Scored]) -> bytes:
        if not self._scores:
            return self._heads[index] + _json(text) + self._no_scores
        scores = _json(chat_logprobs(scored, self._tokenizer))
        return b"".join(
            (self._heads[index], _json(text), b'},"logprobs":', scores, self._after_scores)
        )

    def finish(self, index: int, reason: Finish) -> bytes:
        return b'%b{"index":%d,"delta":{},"logprobs":null,"finish_reason":%b}%b' % (
            self._frame.head,
            index,
            _json(reason),
            self._frame.tail,
        )

    def usage(self, usage: Usage) -> bytes:
        return self._frame.usage(usage)


class CompletionEvents:
    """`text_completion`s. `echoes`: each choice's prompt text, if it is wanted before the rest.
    `top`: how many top log probabilities were asked for; -1: none at all.
    """

    def __init__(
        self,
        request: str,
        created: int,
        model: str,
        *,
        echoes: Sequence[str],
        usage: bool,
        top: int,
        tokenizer: Tokenizer,
    ) -> None:
        frame = self._frame = _Frame("text_completion", request, created, model, usage)
        self._echoes = echoes
        self._top = top
        self._tokenizer = tokenizer
        self._heads = [frame.head + b'{"index":%d,"text":' % index for index in range(len(echoes))]
        self._no_scores = b',"logprobs":null,"finish_reason":null}' + frame.tail
        self._after_scores = b',"finish_reason":null}' + frame.tail

    def opening(self) -> bytes:
        return b"".join(
            self._heads[index] + _json(echo) + self._no_scores
            for index, echo in enumerate(self._echoes)
            if echo
        )

    def text(self, index: int, text: str, scored: Sequence[Scored]) -> bytes:
        if self._top < 0:
            return self._heads[index] + _json(text) + self._no_scores
        scores = _json(completion_logprobs(scored, self._tokenizer, self._top))
        return b"".join(
            (self._heads[index], _json(text), b',"logprobs":', scores, self._after_scores)
        )

    def finish(self, index: int, reason: Finish) -> bytes:
        return b'%b"","logprobs":null,"finish_reason":%b}%b' % (
            self._heads[index],
            _json(reason),
            self._frame.tail,
        )

    def usage(self, usage: Usage) -> bytes:
        return self._frame.usage(usage)
