"""A tokenizer from a GGUF file's metadata (`tokenizer.ggml.*`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import Any, Final

from tokenizers import (
    AddedToken,
    Regex,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
)
from tokenizers import Tokenizer as Encoder

from flatwake_service.errors import TokenizerError
from flatwake_service.text.pretokenizers import PRE_TOKENIZERS, PreTokenizer
from flatwake_service.text.vocabulary import SPACE, Vocabulary

PREFIX: Final = "tokenizer.ggml."


class TokenType(IntEnum):
    """What a token is, by the file's numbers."""

    NORMAL = 1
    UNKNOWN = 2
    CONTROL = 3
    USER_DEFINED = 4
    UNUSED = 5
    BYTE = 6


_ADDED: Final = (TokenType.CONTROL, TokenType.USER_DEFINED, TokenType.UNKNOWN)
# Tokens that the file may name, with what chat templates call them.
_NAMES: Final = {
    "bos": "bos_token",
    "eos": "eos_token",
    "eot": "eot_token",
    "eom": "eom_token",
    "unknown": "unk_token",
    "padding": "pad_token",
}
# Ends of a turn or a text, by name: files state one of them, models trained on chats emit others.
ENDS: Final = frozenset(
    {"<|eot_id|>", "<|eom_id|>", "<|im_end|>", "<|end|>", "<|endoftext|>", "<|end_of_text|>"}
    | {"<end_of_turn>", "<EOT>", "<|EOT|>", "<｜end▁of▁sentence｜>"}
)


def read_gguf_vocabulary(metadata: Mapping[str, Any]) -> Vocabulary:
    """Build the tokenizer that the metadata describe. Raises TokenizerError."""
    tokens = _strings(metadata, "tokens")
    types = _numbers(metadata, "token_type", len(tokens), TokenType.NORMAL)
    kind = str(metadata.get(PREFIX + "model"))
    match kind:
        case "gpt2":
            encoder, adds_bos = _byte_level(metadata, tokens)
        case "llama":
            encoder, adds_bos = _sentence_piece(metadata, tokens, types), True
        case _:
            raise TokenizerError(
                f"the tokenizer model {kind!r} is unknown",
                cure="known: gpt2 llama (tokenizer.ggml.model)",
            )
    added = {i: t for i, t in enumerate(tokens) if t and types[i] in _ADDED}
    special = frozenset(i for i in added if types[i] != TokenType.USER_DEFINED)
    encoder.add_tokens(
        [AddedToken(t, special=i in special, normalized=False) for i, t in added.items()]
    )
    ids = {name: _token_id(metadata, name, len(tokens)) for name in _NAMES}
    _surround(encoder, metadata, tokens, ids, adds_bos)
    ends = {ids[name] for name in ("eos", "eot", "eom")} | {i for i in special if added[i] in ENDS}
    used = [i for i, t in enumerate(types) if t != TokenType.UNUSED]
    return Vocabulary(
        encoder=encoder,
        alphabet="bytes" if kind == "gpt2" else "spaces",
        size=1 + max(used, default=-1),
        added=added,
        special=special,
        bos_id=ids["bos"],
        eos_ids=frozenset(i for i in ends if i is not None),
        names={key: tokens[i] for name, key in _NAMES.items() if (i := ids[name]) is not None},
        strips_space=kind == "llama" and _flag(metadata, "add_space_prefix", True),
    )


def _byte_level(metadata: Mapping[str, Any], tokens: Sequence[str]) -> tuple[Encoder, bool]:
    """(encoder, whether bos is added where the file is silent) of a GPT-2 style vocabulary."""
    name = metadata.get(PREFIX + "pre", "default")
    pre = PRE_TOKENIZERS.get(name) if isinstance(name, str) else None
    if pre is None:
        raise TokenizerError(
            f"the pre-tokenizer {name!r} is unknown",
            cure=f"known: {' '.join(PRE_TOKENIZERS)} (tokenizer.ggml.pre)",
        )
    merges = [_pair(merge) for merge in _strings(metadata, "merges")]
    encoder = Encoder(_bpe(tokens, merges, ignore_merges=pre.ignore_merges))
    encoder.normalizer = normalizers.NFC() if pre.normalizes else None
    encoder.pre_tokenizer = _split(pre)
    encoder.decoder = decoders.ByteLevel()
    return encoder, pre.adds_bos


def _split(pre: PreTokenizer) -> pre_tokenizers.PreTokenizer:
    cuts: list[pre_tokenizers.PreTokenizer] = [
        pre_tokenizers.Split(Regex(pattern), "isolated") for pattern in pre.patterns
    ]
    cuts.append(pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False))
    return pre_tokenizers.Sequence(cuts)


def _sentence_piece(
    metadata: Mapping[str, Any], tokens: Sequence[str], types: Sequence[int]
) -> Encoder:
    """A SentencePiece vocabulary: merges follow from the scores, bytes stand in for the rest."""
    scores = _numbers(metadata, "scores", len(tokens), 0)
    unknown = _token_id(metadata, "unknown", len(tokens))
    model = _bpe(
        tokens,
        _merges(tokens, scores, types),
        unk_token=None if unknown is None else tokens[unknown],
        fuse_unk=True,
        byte_fallback=True,
    )
    encoder = Encoder(model)
    steps: list[normalizers.Normalizer] = [normalizers.Replace(" ", SPACE)]
    if _flag(metadata, "add_space_prefix", True):
        steps.insert(0, normalizers.Prepend(SPACE))
    encoder.normalizer = normalizers.Sequence(steps)
    encoder.decoder = decoders.Sequence(
        [decoders.Replace(SPACE, " "), decoders.ByteFallback(), decoders.Fuse()]
    )
    return encoder


def _merges(
    tokens: Sequence[str], scores: Sequence[float], types: Sequence[int]
) -> list[tuple[str, str]]:
    """Every way to join two tokens into a third, the best score first."""
    usable = (TokenType.NORMAL, TokenType.UNUSED)
    score = {t: s for t, s, k in zip(tokens, scores, types, strict=True) if k in usable}
    found = [
        (-score[token], token[:cut], token[cut:])
        for token in score
        for cut in range(1, len(token))
        if token[:cut] in score and token[cut:] in score
    ]
    found.sort(key=lambda merge: (merge[0], len(merge[1])))
    return [(left, right) for _, left, right in found]


def _bpe(tokens: Sequence[str], merges: list[tuple[str, str]], **options: Any) -> models.BPE:
    vocabulary = {token: i for i, token in enumerate(tokens)}
    try:
        return models.BPE(vocabulary, merges, **options)
    except Exception as error:  # the library raises bare Exception for what it refuses
        raise TokenizerError(f"the vocabulary doesn't fit its merges: {error}") from error


def _surround(
    encoder: Encoder,
    metadata: Mapping[str, Any],
    tokens: Sequence[str],
    ids: Mapping[str, int | None],
    adds_bos: bool,
) -> None:
    """Have the encoder put bos and eos around a text, as the file says."""
    bos, eos = ids["bos"], ids["eos"]
    before = bos if _flag(metadata, "add_bos_token", adds_bos) else None
    after = eos if _flag(metadata, "add_eos_token", False) else None
    around = [i for i in (before, after) if i is not None]
    if not around:
        return
    single = [t for t in (before, "$A", after) if t is not None]
    encoder.post_processor = processors.TemplateProcessing(
        single=[t if isinstance(t, str) else tokens[t] for t in single],
        special_tokens=[(tokens[i], i) for i in dict.fromkeys(around)],
    )


def _pair(merge: str) -> tuple[str, str]:
    # A token may begin with a space only where spaces stand for themselves, so look behind it.
    left, _, right = merge[1:].partition(" ")
    return merge[:1] + left, right


def _strings(metadata: Mapping[str, Any], name: str) -> list[str]:
    value = metadata.get(PREFIX + name)
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise TokenizerError(f"the file has no list of strings {PREFIX}{name}")
    return value


def _numbers(metadata: Mapping[str, Any], name: str, count: int, default: int) -> list[Any]:
    """A number a token; `default` for all where the file has none."""
    value = metadata.get(PREFIX + name)
    if value is None:
        return [default] * count
    if (
        not isinstance(value, list)
        or len(value) != count
        or not all(isinstance(number, (int, float)) for number in value)
    ):
        raise TokenizerError(f"{PREFIX}{name} doesn't have a number for each of {count} tokens")
    return value


def _flag(metadata: Mapping[str, Any], name: str, default: bool) -> bool:
    value = metadata.get(PREFIX + name, default)
    if not isinstance(value, bool):
        raise TokenizerError(f"{PREFIX}{name} is {str(value)[:40]}, not true or false")
    return value


def _token_id(metadata: Mapping[str, Any], name: str, count: int) -> int | None:
    key = f"{PREFIX}{name}_token_id"
    value = metadata.get(key)
    if value is None:
        return None
    if isinstance(value, int) and value in (-1, 0xFFFFFFFF):  # none
        return None
    if not isinstance(value, int) or not 0 <= value < count:
        raise TokenizerError(f"{key} is {str(value)[:40]}, the vocabulary has {count} tokens")
    return value
