"""Text to token ids and back."""

from __future__ import annotations

import os
from array import array
from collections.abc import Iterable, Mapping

from flatwake_service.errors import InvalidText
from flatwake_service.text.gguf_vocabulary import read_gguf_vocabulary
from flatwake_service.text.huggingface_vocabulary import read_huggingface_vocabulary
from flatwake_service.text.vocabulary import Vocabulary, spell
from flatwake_service.weights import Checkpoint

# The library would start a thread a core for a batch of one text.
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")


class Tokenizer:
    """A model's tokenizer. Safe to use from several threads at once.

    - `size`: one more than the highest token id; logits from there on belong to no token.
    - `eos_ids`: tokens that end an answer. `bos_id`: may be None.
    - `special_ids`: tokens that steer the model and aren't text for a reader.
    - `names`: "bos_token", "eos_token", … as text, for chat templates.
    """

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._vocabulary = vocabulary
        # All of them now: a list that filled as tokens are first seen would look like a leak.
        self._text, self._ends = self._spell_all()
        self.size = vocabulary.size
        self.bos_id = vocabulary.bos_id
        self.eos_ids = vocabulary.eos_ids
        self.special_ids = vocabulary.special
        self.names: Mapping[str, str] = vocabulary.names

    def encode(self, text: str, *, add_special: bool = True) -> list[int]:
        """Token ids of a text; special tokens in it are recognised.

        `add_special` puts bos (and eos) around it where the model wants them: True for a plain
        prompt, False for a chat template's output, which holds its own. Takes about a second for
        two megabytes, without the GIL: call it off the event loop. Raises InvalidText.
        """
        check_text(text)
        # `encode` keeps the GIL for all that time; the batch call doesn't.
        batch = self._vocabulary.encoder.encode_batch_fast([text], add_special_tokens=add_special)
        ids: list[int] = batch[0].ids
        return ids

    def decode(self, ids: Iterable[int], *, skip_special: bool = True) -> str:
        """The text of a whole sequence. Ids without a token (padding) have no text."""
        skipped = self.special_ids if skip_special else frozenset()
        data = b"".join(self.piece(i) for i in ids if i not in skipped)
        text = data.decode("utf-8", "replace")
        return text[1:] if self._vocabulary.strips_space and text.startswith(" ") else text

    def piece(self, token: int) -> bytes:
        """The bytes that a token adds to the text, maybe part of a character."""
        if not 0 <= token < self.size:
            return b""
        return self._text[self._ends[token] : self._ends[token + 1]]

    def _spell_all(self) -> tuple[bytes, array[int]]:
        """Every token's bytes, one after the other, and where each one begins."""
        text, ends = bytearray(), array("I", [0])
        for token in range(self._vocabulary.size):
            text += self._spell(token)
            ends.append(len(text))
        return bytes(text), ends

    def _spell(self, token: int) -> bytes:
        literal = self._vocabulary.added.get(token)
        if literal is not None:
            return literal.encode()
        text = self._vocabulary.encoder.id_to_token(token)
        return b"" if text is None else spell(text, self._vocabulary.alphabet)


def check_text(text: str, what: str = "the text") -> None:
    """Refuse a string with a lone surrogate (JSON can spell one), which no encoder takes."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise InvalidText(
            f"{what} isn't Unicode: character {error.start} is the lone surrogate "
            f"U+{ord(text[error.start]):04X}"
        ) from None


def load_tokenizer(checkpoint: Checkpoint) -> Tokenizer:
    """The tokenizer in a checkpoint's files. Raises TokenizerError."""
    if checkpoint.kind == "gguf":
        return Tokenizer(read_gguf_vocabulary(checkpoint.metadata))
    return Tokenizer(read_huggingface_vocabulary(checkpoint.path))
