"""What a tokenizer is made of, whichever files it came from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

from tokenizers import Tokenizer as Encoder

Alphabet = Literal["bytes", "spaces"]
"""How tokens spell text: GPT-2's printable stand-ins for bytes, or SentencePiece's `▁` for a
space with `<0xNN>` for single bytes."""

SPACE: Final = "▁"


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """A tokenizer's parts.

    - `size`: one more than the highest token id; ids from there on are padding of the weights.
    - `added`: tokens that are matched in the text as they are and stand for just that text.
    - `special`: those of them that steer the model and aren't text for a reader.
    - `eos_ids`: tokens that end an answer. `names`: bos_token, eos_token, … for templates.
    - `strips_space`: whole texts begin with a space of the tokenizer's own making.
    """

    encoder: Encoder
    alphabet: Alphabet
    size: int
    added: Mapping[int, str]
    special: frozenset[int]
    bos_id: int | None
    eos_ids: frozenset[int]
    names: Mapping[str, str]
    strips_space: bool = False


def _byte_alphabet() -> dict[str, int]:
    """GPT-2's table: printable Latin-1 stands for itself, the rest for characters from U+0100."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    hidden = [byte for byte in range(256) if byte not in set(printable)]
    return {chr(b): b for b in printable} | {chr(256 + n): b for n, b in enumerate(hidden)}


BYTE_OF: Final[dict[str, int]] = _byte_alphabet()
# Latin-1's bytes by character; what is outside of the alphabet becomes no byte at all.
_OUTSIDE: Final = "\uffff"
_LATIN: Final = dict.fromkeys(range(256), _OUTSIDE) | {
    ord(character): chr(byte) for character, byte in BYTE_OF.items()
}
_RAW_BYTES: Final = {f"<0x{byte:02X}>": bytes([byte]) for byte in range(256)}


def spell(token: str, alphabet: Alphabet) -> bytes:
    """The bytes of text that an ordinary token stands for."""
    if alphabet == "spaces":
        return _RAW_BYTES.get(token) or token.replace(SPACE, " ").encode()
    try:
        return token.translate(_LATIN).encode("latin-1")
    except UnicodeEncodeError:
        return token.encode()
