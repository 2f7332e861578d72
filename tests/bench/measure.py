"""What is measured of a server: aggregate decode speed, and the time to a first token."""

from __future__ import annotations

import pydoc_data.topics
import random
from collections.abc import Sequence
from pathlib import Path

from flatwake_service.bench import sockets
from flatwake_service.bench.layers import together
from flatwake_service.text import load_tokenizer
from flatwake_service.weights import open_checkpoint
from servers import Server

PROMPT = 48
"""Tokens of the prompts before a decode measurement."""


class Prompts:
    """Fresh prompts, cut out of Python's own documentation (the reference, as pydoc carries it)."""

    def __init__(self, model: Path, seed: int) -> None:
        text = "\n\n".join(pydoc_data.topics.topics.values())
        self.ids = load_tokenizer(open_checkpoint(model)).encode(text, add_special=False)
        self._random = random.Random(seed)

    def fresh(self, length: int) -> list[int]:
        start = self._random.randrange(len(self.ids) - length)
        return self.ids[start : start + length]


def decode(server: Server, prompts: Sequence[Sequence[int]], tokens: int) -> float:
    """Tokens a second of all users together, while all of them decode."""
    streams, _ = sockets.complete(server.url, prompts, tokens, server.fields)
    # A server may send two tokens in one event, and a last event that has none.
    weights = [tokens / min(len(s.times), tokens) for s in streams]
    scale = sum(weights) / len(weights)
    return together([s.times[:tokens] for s in streams]) * scale


def first_token(server: Server, prompt: Sequence[int]) -> float:
    """Seconds until the first token of a user alone."""
    streams, began = sockets.complete(server.url, [prompt], 1, server.fields)
    return streams[0].times[0] - began
