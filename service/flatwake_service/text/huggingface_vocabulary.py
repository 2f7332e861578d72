"""A tokenizer from a Hugging Face folder: tokenizer.json and what stands beside it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, processors
from tokenizers import Tokenizer as Encoder

from flatwake_service.errors import TokenizerError
from flatwake_service.text.vocabulary import SPACE, Alphabet, Vocabulary
from flatwake_service.weights.safetensors import read_json

_NAMES = ("bos_token", "eos_token", "unk_token", "pad_token", "sep_token", "cls_token")


def read_huggingface_vocabulary(folder: Path) -> Vocabulary:
    """Read tokenizer.json and the configurations beside it. Raises TokenizerError."""
    path = folder / "tokenizer.json"
    if not path.exists():
        other = (folder / "tokenizer.model").exists() or (folder / "vocab.json").exists()
        convert = "make one with transformers: AutoTokenizer.from_pretrained(…).save_pretrained(…)"
        raise TokenizerError(
            f"{folder} has no tokenizer.json", cure=convert if other else "fetch the whole folder"
        )
    try:
        text = path.read_text("utf-8")
        described = json.loads(text)
        _check_model(described, path)
        encoder = Encoder.from_str(text)
    except TokenizerError:
        raise
    except Exception as error:  # the library raises bare Exception for what it refuses
        raise TokenizerError(f"{path} can't be read: {error}") from error
    encoder.no_truncation()  # settings of its training, which files carry along
    encoder.no_padding()
    config = _optional(folder / "tokenizer_config.json")
    _add_tokens(encoder, config, path)
    names = _names(config, _optional(folder / "special_tokens_map.json"))
    alphabet, strips_space = _alphabet(described.get("decoder"), path)
    added = {i: str(token.content) for i, token in encoder.get_added_tokens_decoder().items()}
    special = {i for i, token in encoder.get_added_tokens_decoder().items() if token.special}
    bos_id = encoder.token_to_id(names["bos_token"]) if "bos_token" in names else None
    _surround(encoder, config, names)
    return Vocabulary(
        encoder=encoder,
        alphabet=alphabet,
        size=1 + max(encoder.get_vocab(with_added_tokens=True).values(), default=-1),
        added=added,
        special=frozenset(special),
        bos_id=bos_id,
        eos_ids=_ends(folder, encoder, names),
        names=names,
        strips_space=strips_space,
    )


def _check_model(described: Any, path: Path) -> None:
    """Refuse what tokens' text can't be read off, and what makes the library abort the process."""
    model = described.get("model") if isinstance(described, Mapping) else None
    if not isinstance(model, Mapping):
        raise TokenizerError(f"{path} can't be read: it has no model")
    kind = model.get("type", "BPE")  # old files don't say
    if kind not in ("BPE", "Unigram"):
        raise TokenizerError(f"{path}: the model {str(kind)[:40]!r} is unknown; known: BPE Unigram")
    for field in ("continuing_subword_prefix", "end_of_word_suffix"):
        if model.get(field):
            raise TokenizerError(f"{path}: a model with a {field} isn't supported")


def _optional(path: Path) -> dict[str, Any]:
    return read_json(path) if path.exists() else {}


def _content(token: Any) -> str | None:
    """A token's text, written plainly or as an AddedToken's fields."""
    if isinstance(token, Mapping):
        token = token.get("content")
    return token if isinstance(token, str) else None


def _names(config: Mapping[str, Any], special: Mapping[str, Any]) -> dict[str, str]:
    names: dict[str, str] = {}
    for name in _NAMES:
        token = _content(config.get(name)) or _content(special.get(name))
        if token is not None:
            names[name] = token
    return names


def _add_tokens(encoder: Encoder, config: Mapping[str, Any], path: Path) -> None:
    """Add the tokens that only tokenizer_config.json knows; ids must be the stated ones."""
    listed = config.get("added_tokens_decoder")
    if not isinstance(listed, Mapping):
        return
    stated = path.parent / "tokenizer_config.json"
    flags = ("single_word", "lstrip", "rstrip", "normalized", "special")
    if not all(number.isdecimal() and len(number) < 10 for number in listed):
        raise TokenizerError(f"{stated}: added_tokens_decoder has keys that are no token ids")
    for number, token in sorted(listed.items(), key=lambda item: int(item[0])):
        content = _content(token)
        if content is None or encoder.token_to_id(content) is not None:
            continue
        fields = token if isinstance(token, Mapping) else {}
        given = {flag: bool(fields[flag]) for flag in flags if flag in fields}
        encoder.add_tokens([AddedToken(content, **given)])
        if encoder.token_to_id(content) != int(number):
            raise TokenizerError(
                f"{stated} gives {content!r} the id {number}, "
                f"{path.name} would give {encoder.token_to_id(content)}"
            )


def _surround(encoder: Encoder, config: Mapping[str, Any], names: Mapping[str, str]) -> None:
    """Let `add_bos_token` and `add_eos_token` win over what tokenizer.json does, as in the library
    that it was made for.
    """
    found = _around(encoder)
    sides: list[list[str]] = []
    for name, there in zip(("bos", "eos"), found, strict=True):
        token = names.get(f"{name}_token")
        number = encoder.token_to_id(token) if token is not None else None
        stated = config.get(f"add_{name}_token")
        wanted = stated if isinstance(stated, bool) else number in there
        sides.append([token] if token is not None and number is not None and wanted else [])
    if [[encoder.token_to_id(token) for token in side] for side in sides] == found or not any(
        isinstance(config.get(f"add_{name}_token"), bool) for name in ("bos", "eos")
    ):
        return
    before, after = sides
    encoder.post_processor = processors.TemplateProcessing(
        single=[*before, "$A", *after],
        special_tokens=[(t, encoder.token_to_id(t)) for t in dict.fromkeys(before + after)],
    )


def _around(encoder: Encoder) -> list[list[int]]:
    """The ids that tokenizer.json puts before and after a text."""
    plain = encoder.encode("a", add_special_tokens=False).ids
    whole = encoder.encode("a", add_special_tokens=True).ids
    for start in range(len(whole) - len(plain) + 1):
        end = start + len(plain)
        if whole[start:end] == plain:
            return [whole[:start], whole[end:]]
    return [whole, []]


def _alphabet(decoder: Any, path: Path) -> tuple[Alphabet, bool]:
    """(how tokens spell text, whether a text's first space is the tokenizer's own)."""
    steps = decoder.get("decoders", [decoder]) if isinstance(decoder, Mapping) else []
    kinds = {step.get("type"): step for step in steps if isinstance(step, Mapping)}
    if "ByteLevel" in kinds:
        return "bytes", False
    replaces = kinds.get("Replace", {})
    if replaces.get("content") == " " and replaces.get("pattern") == {"String": SPACE}:
        return "spaces", kinds.get("Strip", {}).get("start", 0) > 0
    if "Metaspace" in kinds:
        meta = kinds["Metaspace"]
        prepends = meta.get("prepend_scheme", "always" if meta.get("add_prefix_space") else "never")
        return "spaces", prepends != "never"
    raise TokenizerError(
        f"{path} decodes by {', '.join(map(str, kinds)) or 'nothing'}, which isn't supported",
        cure="known: ByteLevel, Metaspace, and Replace with ByteFallback",
    )


def _ends(folder: Path, encoder: Encoder, names: Mapping[str, str]) -> frozenset[int]:
    """Token ids that end an answer: generation_config.json's (else config.json's) and eos_token."""
    ends: set[int] = set()
    for file in ("generation_config.json", "config.json"):
        value = _optional(folder / file).get("eos_token_id")
        ids = value if isinstance(value, list) else [value]
        ends |= {i for i in ids if type(i) is int}
        if ends:
            break
    eos = encoder.token_to_id(names["eos_token"]) if "eos_token" in names else None
    return frozenset(ends | ({eos} if eos is not None else set()))
