"""How text is cut into words before byte-pair merges, by the names that GGUF files use.

A Hugging Face tokenizer.json holds its own patterns; a GGUF file only names them
(`tokenizer.ggml.pre`). The patterns are those of the models' own tokenizer.json files.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

_ENGLISH: Final = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_SPACES: Final = r"\s*[\r\n]+|\s+(?!\S)|\s+"

GPT2: Final = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
LLAMA3: Final = (
    _ENGLISH + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|" + _SPACES
)
QWEN2: Final = _ENGLISH + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|" + _SPACES
QWEN35: Final = (
    _ENGLISH + r"|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|" + _SPACES
)
_UPPER: Final = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]"
_LOWER: Final = r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_START: Final = r"[^\r\n\p{L}\p{N}]?"
TEKKEN: Final = (
    rf"{_START}{_UPPER}*{_LOWER}+|{_START}{_UPPER}+{_LOWER}*"
    r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|" + _SPACES
)
GPT4O: Final = (
    rf"{_START}{_UPPER}*{_LOWER}+{_ENGLISH}?|{_START}{_UPPER}+{_LOWER}*{_ENGLISH}?"
    r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|" + _SPACES
)


@dataclass(frozen=True, slots=True)
class PreTokenizer:
    """What a pre-tokenizer's name stands for.

    `patterns` cut one after the other, each within the pieces of the one before. A word that is a
    token itself skips the merges with `ignore_merges`. `adds_bos` holds where the file is silent.
    """

    patterns: tuple[str, ...]
    ignore_merges: bool = False
    adds_bos: bool = False
    normalizes: bool = False  # to NFC


_GPT2 = PreTokenizer((GPT2,))
_DIGITS = PreTokenizer((r"\p{N}", GPT2))
_LLAMA3 = PreTokenizer((LLAMA3,), ignore_merges=True, adds_bos=True)
_QWEN2 = PreTokenizer((QWEN2,), normalizes=True)

PRE_TOKENIZERS: Final[dict[str, PreTokenizer]] = {
    # What files from before `tokenizer.ggml.pre` get, too.
    "default": PreTokenizer((r"[\p{P}\$\+<=>\^~\|]+", GPT2, r"\p{N}+", r"[0-9][0-9][0-9]")),
    "gpt-2": _GPT2,
    "phi-2": _GPT2,
    "mpt": _GPT2,
    "olmo": _GPT2,
    "smollm": _DIGITS,
    "starcoder": _DIGITS,
    "refact": _DIGITS,
    "command-r": _DIGITS,
    "codeshell": _DIGITS,
    "minerva-7b": _DIGITS,
    "llama3": _LLAMA3,
    "llama-v3": _LLAMA3,
    "llama-bpe": _LLAMA3,
    "falcon3": _LLAMA3,
    "dbrx": PreTokenizer((LLAMA3,)),
    "smaug-bpe": PreTokenizer((LLAMA3,)),
    "qwen2": _QWEN2,
    "deepseek-r1-qwen": _QWEN2,
    "megrez": _QWEN2,
    "stablelm2": PreTokenizer((QWEN2,)),
    "qwen35": PreTokenizer((QWEN35,), normalizes=True),
    "tekken": PreTokenizer((TEKKEN,), ignore_merges=True, adds_bos=True),
    "gpt-4o": PreTokenizer((GPT4O,)),
}
