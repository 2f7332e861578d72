"""A trained tokenizer as GGUF metadata, the way conversion writes it."""

from __future__ import annotations

import json
from typing import Any

from gguf import TokenType
from tokenizers import Tokenizer


def gguf_metadata(tokenizer: Tokenizer, pre: str, *, padding: int = 0) -> dict[str, Any]:
    """`tokenizer.ggml.*` of a byte-level tokenizer, with `padding` unused tokens at the end."""
    described = json.loads(tokenizer.to_str())
    vocabulary = tokenizer.get_vocab(with_added_tokens=True)
    tokens = sorted(vocabulary, key=vocabulary.__getitem__)
    special = {t["content"] for t in described["added_tokens"] if t["special"]}
    added = {t["content"] for t in described["added_tokens"]}
    types = [
        int(
            TokenType.CONTROL
            if t in special
            else TokenType.USER_DEFINED
            if t in added
            else TokenType.NORMAL
        )
        for t in tokens
    ]
    return {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": pre,
        "tokenizer.ggml.tokens": tokens + [f"[PAD{i}]" for i in range(padding)],
        "tokenizer.ggml.token_type": types + [int(TokenType.UNUSED)] * padding,
        "tokenizer.ggml.merges": [" ".join(merge) for merge in described["model"]["merges"]],
        "tokenizer.ggml.bos_token_id": vocabulary["<|endoftext|>"],
        "tokenizer.ggml.eos_token_id": vocabulary["<|im_end|>"],
    }
