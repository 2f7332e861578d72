"""The engine's log probabilities in OpenAI's two shapes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from flatwake_service.engine.messages import TokenLogprobs
from flatwake_service.http.responses import (
    LOGPROB_FLOOR,
    ChatLogprobs,
    CompletionLogprobs,
    TokenLogprob,
    TopLogprob,
)
from flatwake_service.text import Tokenizer


class Scored(NamedTuple):
    """A token with its log probabilities; its text is `[start, end)` of the choice's text."""

    token: int
    scores: TokenLogprobs
    start: int
    end: int


def chat_logprobs(scored: Sequence[Scored], tokenizer: Tokenizer) -> ChatLogprobs:
    return ChatLogprobs([_entry(entry, tokenizer) for entry in scored])


def completion_logprobs(
    scored: Sequence[Scored], tokenizer: Tokenizer, top: int
) -> CompletionLogprobs:
    """`top`: how many were asked for; 0 gives the chosen tokens' alone."""
    return CompletionLogprobs(
        tokens=[_text(tokenizer.piece(entry.token)) for entry in scored],
        token_logprobs=[finite(entry.scores.chosen) for entry in scored],
        top_logprobs=[_top(entry.scores, tokenizer) for entry in scored] if top else None,
        text_offset=[entry.start for entry in scored],
    )


def finite(value: float) -> float:
    return max(value, LOGPROB_FLOOR) if math.isfinite(value) else LOGPROB_FLOOR


def _entry(entry: Scored, tokenizer: Tokenizer) -> TokenLogprob:
    piece, scores = tokenizer.piece(entry.token), entry.scores
    top = []
    for token, value in zip(scores.top_ids, scores.top_logprobs, strict=True):
        other = tokenizer.piece(token)
        top.append(TopLogprob(_text(other), finite(value), list(other)))
    return TokenLogprob(_text(piece), finite(scores.chosen), list(piece), top)


def _top(scores: TokenLogprobs, tokenizer: Tokenizer) -> dict[str, float]:
    top: dict[str, float] = {}
    for token, value in zip(scores.top_ids, scores.top_logprobs, strict=True):
        # Two tokens may read the same (halves of characters do): the likelier one stays.
        top.setdefault(_text(tokenizer.piece(token)), finite(value))
    return top


def _text(piece: bytes) -> str:
    return piece.decode("utf-8", "replace")
