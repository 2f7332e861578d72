"""Tokenizers of both kinds of file: the same ids, the same text, clear refusals."""

from __future__ import annotations

import itertools
import json
import os
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flatwake_service.errors import InvalidText, TokenizerError
from flatwake_service.text import Tokenizer, load_tokenizer
from flatwake_service.text.gguf_vocabulary import read_gguf_vocabulary
from flatwake_service.text.huggingface_vocabulary import read_huggingface_vocabulary
from flatwake_service.text.pretokenizers import PRE_TOKENIZERS
from flatwake_service.weights import open_checkpoint
from gguf import TokenType
from gguf_tokenizers import gguf_metadata
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tiny_models import SPECIALS, train_byte_level, write_tiny
from tokenizers import AddedToken, decoders, models, normalizers, processors
from tokenizers import Tokenizer as Encoder

TRAINED = {
    pre: train_byte_level(pre)
    for pre in ("gpt-2", "smollm", "llama-bpe", "qwen2", "qwen35", "tekken")
}
FROM_GGUF = {
    pre: Tokenizer(read_gguf_vocabulary(gguf_metadata(trained, pre)))
    for pre, trained in TRAINED.items()
}
TEXT = st.lists(
    st.one_of(
        st.text(max_size=12),
        st.text(st.sampled_from(" \t\r\n'sStTlLdD019.,!?éß日本🎉\u0301"), max_size=12),
        st.sampled_from([*SPECIALS, "<|im", "it's", "I'LL", "  \n\n ", "3.14159", "e\u0301"]),
    ),
    max_size=6,
).map("".join)


@pytest.mark.parametrize("pre", TRAINED)
@given(text=TEXT)
@settings(max_examples=150, deadline=None)
def test_a_gguf_tokenizer_agrees_with_the_one_it_was_made_from(pre: str, text: str) -> None:
    for add_special in (False, True):
        want = TRAINED[pre].encode(text, add_special_tokens=add_special).ids
        assert FROM_GGUF[pre].encode(text, add_special=add_special) == want


@pytest.mark.parametrize("pre", ["gpt-2", "smollm", "llama-bpe", "tekken"])  # without NFC
@given(text=TEXT)
@settings(max_examples=80, deadline=None)
def test_decoding_gives_the_text_back(pre: str, text: str) -> None:
    tokenizer = FROM_GGUF[pre]
    ids = tokenizer.encode(text, add_special=False)
    assert tokenizer.decode(ids, skip_special=False) == text
    assert tokenizer.decode(ids) == TRAINED[pre].decode(ids, skip_special_tokens=True)


# Words that the models' published patterns cut a text into.
WORDS = {
    "smollm": ("don't pay 123  €", ["don", "'t", " pay", " ", "1", "2", "3", " ", " €"]),
    "llama-bpe": ("I'LL pay 12345\n\n x", ["I", "'LL", " pay", " ", "123", "45", "\n\n", " x"]),
    "qwen2": ("I'LL pay 123\n x", ["I", "'LL", " pay", " ", "1", "2", "3", "\n", " x"]),
    "tekken": ("camelCase HTTPServer", ["camel", "Case", " HTTPServer"]),
    "gpt-4o": ("don't HTTPServer 1234", ["don't", " HTTPServer", " ", "123", "4"]),
    "default": ("a+b 12345", ["a", "+", "b", " ", "123", "45"]),
}


@pytest.mark.parametrize("pre", WORDS)
def test_each_pattern_cuts_words_as_published(pre: str) -> None:
    from flatwake_service.text.gguf_vocabulary import _split

    text, words = WORDS[pre]
    spelled = [word for word, _ in _split(PRE_TOKENIZERS[pre]).pre_tokenize_str(text)]
    assert [decoders.ByteLevel().decode([word]) for word in spelled] == words


def test_combining_marks_stay_with_their_letters_in_qwen35_only() -> None:
    from flatwake_service.text.gguf_vocabulary import _split

    count = {
        pre: len(_split(PRE_TOKENIZERS[pre]).pre_tokenize_str("हिन्दी"))
        for pre in ("qwen2", "qwen35")
    }
    assert count["qwen35"] == 1 < count["qwen2"]


def test_padding_is_no_part_of_the_vocabulary_and_has_no_text() -> None:
    trained = TRAINED["qwen2"]
    tokenizer = Tokenizer(read_gguf_vocabulary(gguf_metadata(trained, "qwen2", padding=10)))
    assert tokenizer.size == trained.get_vocab_size()
    assert tokenizer.decode([tokenizer.size + 3, -1, 10**9]) == ""


def test_the_ends_are_the_stated_ones_and_the_chat_s(tmp_path: Path) -> None:
    end, text = (TRAINED["qwen2"].token_to_id(t) for t in ("<|im_end|>", "<|endoftext|>"))
    assert FROM_GGUF["qwen2"].eos_ids == {end, text}
    folder = write_tiny(tmp_path / "tiny", "qwen2")
    assert load_tokenizer(open_checkpoint(folder)).eos_ids == {end, text}
    (folder / "generation_config.json").unlink()
    assert load_tokenizer(open_checkpoint(folder)).eos_ids == {end}


@pytest.mark.parametrize(
    ("stated", "expected"), [(None, False), (True, True), (False, False)], ids=str
)
def test_bos_is_added_as_the_file_says(stated: bool | None, expected: bool) -> None:
    metadata = gguf_metadata(TRAINED["qwen2"], "qwen2")
    if stated is not None:
        metadata["tokenizer.ggml.add_bos_token"] = stated
    tokenizer = Tokenizer(read_gguf_vocabulary(metadata))
    assert (tokenizer.encode("a")[0] == tokenizer.bos_id) is expected
    assert tokenizer.encode("a", add_special=False)[0] != tokenizer.bos_id


@pytest.mark.parametrize(("name", "wanted"), [("qwen2", True), ("llama3", False)])
def test_add_bos_token_wins_over_tokenizer_json(tmp_path: Path, name: str, wanted: bool) -> None:
    folder = write_tiny(tmp_path / "tiny", name)
    before = Tokenizer(read_huggingface_vocabulary(folder))
    assert (before.encode("a")[0] == before.bos_id) is not wanted
    _edit(folder / "tokenizer_config.json", add_bos_token=wanted)
    after = Tokenizer(read_huggingface_vocabulary(folder))
    assert (after.encode("a")[0] == after.bos_id) is wanted
    assert after.encode("a").count(after.bos_id) == wanted


@pytest.mark.parametrize("bos", [None, True, False])
@pytest.mark.parametrize("name", ["qwen2", "llama3"])
def test_add_eos_token_ends_a_plain_prompt_whatever_begins_it(
    tmp_path: Path, name: str, bos: bool | None
) -> None:
    folder = write_tiny(tmp_path / "tiny", name)
    plain = Tokenizer(read_huggingface_vocabulary(folder))
    eos = plain._vocabulary.encoder.token_to_id(plain.names["eos_token"])
    begins = plain.encode("a")[0] == plain.bos_id if bos is None else bos
    _edit(folder / "tokenizer_config.json", add_eos_token=True)
    if bos is not None:
        _edit(folder / "tokenizer_config.json", add_bos_token=bos)
    ids = Tokenizer(read_huggingface_vocabulary(folder)).encode("a")
    assert ids == [plain.bos_id] * begins + plain.encode("a", add_special=False) + [eos]
    _edit(folder / "tokenizer_config.json", add_eos_token=False)
    ids = Tokenizer(read_huggingface_vocabulary(folder)).encode("a")
    assert ids == [plain.bos_id] * begins + plain.encode("a", add_special=False)


def test_an_end_in_tokenizer_json_stays_when_only_the_beginning_is_configured(
    tmp_path: Path,
) -> None:
    folder = write_tiny(tmp_path / "tiny", "qwen2")
    path = folder / "tokenizer.json"
    encoder = Encoder.from_file(str(path))
    bos, eos = "<|endoftext|>", "<|im_end|>"
    ids = [(t, encoder.token_to_id(t)) for t in (bos, eos)]
    encoder.post_processor = processors.TemplateProcessing(
        single=[bos, "$A", eos], special_tokens=ids
    )
    encoder.save(str(path))
    _edit(folder / "tokenizer_config.json", add_bos_token=False)
    found = Tokenizer(read_huggingface_vocabulary(folder)).encode("a")
    assert found[-1] == ids[1][1]
    assert ids[0][1] not in found


def test_truncation_and_padding_in_tokenizer_json_are_ignored(tmp_path: Path) -> None:
    encoder = train_byte_level("qwen2")
    encoder.enable_truncation(4)
    encoder.enable_padding(length=32)
    encoder.save(str(tmp_path / "tokenizer.json"))
    tokenizer = Tokenizer(read_huggingface_vocabulary(tmp_path))
    assert (
        tokenizer.decode(tokenizer.encode("one two three four five")) == "one two three four five"
    )


def test_tokens_of_tokenizer_config_alone_are_added(tmp_path: Path) -> None:
    folder = write_tiny(tmp_path / "tiny", "qwen2")
    size = Tokenizer(read_huggingface_vocabulary(folder)).size
    token = {"content": "<tool>", "special": True, "normalized": False}
    _edit(folder / "tokenizer_config.json", added_tokens_decoder={str(size): token})
    tokenizer = Tokenizer(read_huggingface_vocabulary(folder))
    assert tokenizer.encode("<tool>", add_special=False) == [size]
    assert size in tokenizer.special_ids
    _edit(folder / "tokenizer_config.json", added_tokens_decoder={str(size + 5): token})
    with pytest.raises(TokenizerError, match=f"gives '<tool>' the id {size + 5}"):
        read_huggingface_vocabulary(folder)


def _edit(path: Path, **fields: Any) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | fields))


# SentencePiece -----------------------------------------------------------------------------------

PIECES = ["▁", "a", "b", "c", "▁a", "ab", "▁ab", "bc", "abc", "aa", "▁▁"]
SCORES = {piece: -float(i) for i, piece in enumerate(PIECES[4:])}


def sentence_piece() -> dict[str, Any]:
    bytes_ = [f"<0x{i:02X}>" for i in range(256)]
    tokens = ["<unk>", "<s>", "</s>", *bytes_, *PIECES]
    types = [TokenType.UNKNOWN, TokenType.CONTROL, TokenType.CONTROL]
    types += [TokenType.BYTE] * 256 + [TokenType.NORMAL] * len(PIECES)
    return {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.scores": [SCORES.get(t, -1000.0) for t in tokens],
        "tokenizer.ggml.token_type": [int(t) for t in types],
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.ggml.unknown_token_id": 0,
    }


def merge_by_score(text: str) -> list[str]:
    """SentencePiece's BPE, naively: join the best-scored neighbours, the leftmost first."""
    symbols = list("▁" + text.replace(" ", "▁"))
    while True:
        pairs = [(SCORES.get(a + b), -i) for i, (a, b) in enumerate(itertools.pairwise(symbols))]
        found = [pair for pair in pairs if pair[0] is not None]
        if not found:
            break
        at = -max(found)[1]
        symbols[at : at + 2] = [symbols[at] + symbols[at + 1]]
    return [
        s if s in PIECES else f"<0x{byte:02X}>"
        for s in symbols
        for byte in (s.encode() if s not in PIECES else [0])
    ]


@given(text=st.text(st.sampled_from("aabbc  é🎉"), min_size=1, max_size=14))
@settings(max_examples=200, deadline=None)
def test_a_sentencepiece_vocabulary_merges_by_score_and_falls_back_to_bytes(text: str) -> None:
    tokenizer = Tokenizer(read_gguf_vocabulary(sentence_piece()))
    tokens = sentence_piece()["tokenizer.ggml.tokens"]
    ids = tokenizer.encode(text)
    assert ids[0] == tokenizer.bos_id == 1
    assert [tokens[i] for i in ids[1:]] == merge_by_score(text)
    assert tokenizer.decode(ids) == text


def test_a_sentencepiece_tokenizer_json_decodes_as_the_library_does(tmp_path: Path) -> None:
    vocabulary = {t: i for i, t in enumerate(sentence_piece()["tokenizer.ggml.tokens"])}
    merges = [("▁", "a"), ("a", "b"), ("▁a", "b"), ("b", "c"), ("ab", "c")]
    encoder = Encoder(models.BPE(vocabulary, merges, byte_fallback=True, unk_token="<unk>"))
    encoder.normalizer = normalizers.Sequence(
        [normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]
    )
    encoder.decoder = decoders.Sequence(
        [
            decoders.Replace("▁", " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(" ", 1, 0),
        ]
    )
    encoder.add_special_tokens([AddedToken("<s>", special=True)])
    encoder.save(str(tmp_path / "tokenizer.json"))
    tokenizer = Tokenizer(read_huggingface_vocabulary(tmp_path))
    for text in ("abc ab", " a", "é 🎉", "a  c"):
        ids = tokenizer.encode(text)
        assert tokenizer.decode(ids) == encoder.decode(ids) == text


# Refusals ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"tokenizer.ggml.model": "bert"}, r"tokenizer model 'bert' is unknown; known: gpt2 llama"),
        ({"tokenizer.ggml.pre": "martian"}, r"pre-tokenizer 'martian' is unknown; known: .*qwen35"),
        ({"tokenizer.ggml.tokens": None}, r"no list of strings tokenizer\.ggml\.tokens"),
        ({"tokenizer.ggml.tokens": 7}, r"no list of strings tokenizer\.ggml\.tokens"),
        ({"tokenizer.ggml.merges": ["nothing here"]}, r"doesn't fit its merges"),
        ({"tokenizer.ggml.merges": ["one"]}, r"doesn't fit its merges"),
        ({"tokenizer.ggml.token_type": [1]}, r"token_type doesn't have a number for each"),
        ({"tokenizer.ggml.eos_token_id": 10**6}, r"eos_token_id is 1000000, the vocabulary has"),
        ({"tokenizer.ggml.bos_token_id": "x"}, r"bos_token_id is x"),
    ],
)
def test_a_vocabulary_that_cannot_work_is_refused_by_name(change: Any, message: str) -> None:
    with pytest.raises(TokenizerError, match=message):
        read_gguf_vocabulary(gguf_metadata(TRAINED["qwen2"], "qwen2") | change)


@pytest.mark.parametrize("text", ["{", "[]", "{}", '{"model": {"type": "BPE"}}', "\ufeff"])
def test_a_damaged_tokenizer_json_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "tokenizer.json").write_text(text)
    with pytest.raises(TokenizerError, match=r"tokenizer\.json can't be read"):
        read_huggingface_vocabulary(tmp_path)


def test_a_missing_tokenizer_json_says_so(tmp_path: Path) -> None:
    with pytest.raises(TokenizerError, match=r"has no tokenizer\.json; fetch the whole folder"):
        read_huggingface_vocabulary(tmp_path)
    (tmp_path / "tokenizer.model").touch()
    with pytest.raises(TokenizerError, match=r"has no tokenizer\.json; make one with transformers"):
        read_huggingface_vocabulary(tmp_path)


def test_an_unknown_decoder_is_refused_by_name(tmp_path: Path) -> None:
    encoder = Encoder(models.WordPiece({"[UNK]": 0}, unk_token="[UNK]"))
    encoder.save(str(tmp_path / "tokenizer.json"))
    with pytest.raises(TokenizerError, match="the model 'WordPiece' is unknown; known: BPE"):
        read_huggingface_vocabulary(tmp_path)
    encoder = Encoder(models.BPE({"a": 0}, []))
    encoder.decoder = decoders.WordPiece()
    encoder.save(str(tmp_path / "tokenizer.json"))
    with pytest.raises(TokenizerError, match="decodes by WordPiece, which isn't supported"):
        read_huggingface_vocabulary(tmp_path)


ODD: list[Any] = [None, -1, 0, 2**64 - 1, 1.5, "", "x", "llama", [], ["a"], ["a", "a"], ["a b"]]
ODD += [True, np.zeros(3), np.zeros(0), {}, {"content": 3}, {"type": "X"}, [""] * 5, "(((", "\0"]


@given(
    keys=st.lists(st.sampled_from(sorted(gguf_metadata(TRAINED["qwen2"], "qwen2"))), max_size=2),
    values=st.lists(st.sampled_from(range(len(ODD))), min_size=2, max_size=2),
    kind=st.sampled_from(["gpt2", "llama"]),
)
@settings(max_examples=150, deadline=None)
def test_odd_metadata_are_refused_or_work(keys: list[str], values: list[int], kind: str) -> None:
    metadata = gguf_metadata(TRAINED["qwen2"], "qwen2") | {"tokenizer.ggml.model": kind}
    metadata |= {key: ODD[value] for key, value in zip(keys, values, strict=False)}
    try:
        tokenizer = Tokenizer(read_gguf_vocabulary(metadata))
    except TokenizerError:
        return
    assert isinstance(tokenizer.decode(tokenizer.encode("Hello é 12")), str)


def _places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every place in a JSON value down to the fourth level, of long lists the first two."""
    inside: list[Any] = []
    if isinstance(value, dict):
        inside = list(value)[:20]
    elif isinstance(value, list):
        inside = list(range(min(2, len(value))))
    deeper = [p for key in inside if len(path) < 4 for p in _places(value[key], (*path, key))]
    return [path, *deeper] if path else deeper


DESCRIBED = json.loads(TRAINED["qwen2"].to_str())


@given(
    place=st.sampled_from(_places(DESCRIBED)),
    value=st.sampled_from([v for v in ODD if not isinstance(v, np.ndarray)]),
)
@settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_an_odd_tokenizer_json_is_refused_or_works(
    place: tuple[Any, ...], value: Any, tmp_path: Path
) -> None:
    described = json.loads(json.dumps(DESCRIBED))
    holder = described
    for key in place[:-1]:
        holder = holder[key]
    holder[place[-1]] = value
    (tmp_path / "tokenizer.json").write_text(json.dumps(described))
    try:
        tokenizer = Tokenizer(read_huggingface_vocabulary(tmp_path))
    except TokenizerError:
        return
    assert isinstance(tokenizer.decode(tokenizer.encode("Hello é 12")), str)


@pytest.mark.parametrize("field", ["continuing_subword_prefix", "end_of_word_suffix"])
def test_what_would_abort_the_process_is_refused(tmp_path: Path, field: str) -> None:
    described = json.loads(json.dumps(DESCRIBED))
    described["model"][field] = "long prefix"
    (tmp_path / "tokenizer.json").write_text(json.dumps(described))
    with pytest.raises(TokenizerError, match=field):
        read_huggingface_vocabulary(tmp_path)


def test_keys_that_are_no_ids_are_refused(tmp_path: Path) -> None:
    folder = write_tiny(tmp_path / "tiny", "qwen2")
    _edit(folder / "tokenizer_config.json", added_tokens_decoder={"x": {"content": "<a>"}})
    with pytest.raises(TokenizerError, match="keys that are no token ids"):
        read_huggingface_vocabulary(folder)


def test_a_lone_surrogate_is_refused_with_its_place() -> None:
    with pytest.raises(InvalidText, match=r"character 2 is the lone surrogate U\+D800"):
        FROM_GGUF["qwen2"].encode("ab\ud800c")


def test_encoding_starts_no_threads() -> None:
    before = len(os.listdir("/proc/self/task"))
    FROM_GGUF["smollm"].encode("some text")
    assert len(os.listdir("/proc/self/task")) == before


def test_encoding_a_long_text_leaves_other_threads_running() -> None:
    text = "The quick brown fox jumps. " * 20_000
    done = threading.Event()
    beats: list[float] = []

    def beat() -> None:
        while not done.wait(0.001):
            beats.append(time.perf_counter())

    thread = threading.Thread(target=beat)
    thread.start()
    begun = time.perf_counter()
    FROM_GGUF["smollm"].encode(text)
    took = time.perf_counter() - begun
    done.set()
    thread.join()
    gaps = [b - a for a, b in itertools.pairwise(beats)]
    assert max(gaps) < took / 2, f"a gap of {max(gaps):.3f} s in {took:.3f} s"
