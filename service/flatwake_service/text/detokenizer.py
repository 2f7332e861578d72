"""Text from tokens as they come."""

from __future__ import annotations

import codecs
from collections.abc import Iterable

from flatwake_service.text.tokenizer import Tokenizer

_Utf8 = codecs.getincrementaldecoder("utf-8")


class Detokenizer:
    """Turns one sequence's tokens into text, never half a character.

    A character that is split across tokens is held back until it is whole; bytes that can't become
    one are U+FFFD at once. Each call's work is that of its own tokens.

    The text continues a prompt, so a first token's leading space stays (`Tokenizer.decode`, which
    sees whole texts, drops the one that the tokenizer made up).
    """

    __slots__ = ("_decoder", "_skipped", "_tokenizer")

    def __init__(self, tokenizer: Tokenizer, *, skip_special: bool = True) -> None:
        self._tokenizer = tokenizer
        self._skipped = tokenizer.special_ids if skip_special else frozenset[int]()
        self._decoder = _Utf8("replace")

    def push(self, ids: Iterable[int]) -> str:
        """The text that these tokens complete."""
        piece, skipped = self._tokenizer.piece, self._skipped
        return self._decoder.decode(b"".join([piece(i) for i in ids if i not in skipped]))

    def flush(self) -> str:
        """What is still held back, when no token follows: a broken character is U+FFFD."""
        return self._decoder.decode(b"", final=True)
