"""GGUF files: what a sound one holds, and that no lie gets past, hangs or costs memory."""

from __future__ import annotations

import struct
import tracemalloc
from pathlib import Path

import gguf
import numpy as np
import pytest
from flatwake_service.errors import CheckpointError, UnsupportedModel
from flatwake_service.text.gguf_vocabulary import TokenType
from flatwake_service.weights import QUANTIZED, Format, block_shape, open_checkpoint, row_bytes
from flatwake_service.weights.dequantize import dequantize
from flatwake_service.weights.gguf import Kind, read_gguf
from gguf_files import (
    ARCHITECTURE,
    quantize,
    raw_entry,
    raw_gguf,
    raw_string,
    raw_tensor,
    write_gguf,
)
from hypothesis import given, settings
from hypothesis import strategies as st

U32, U64 = struct.Struct("<I").pack, struct.Struct("<Q").pack


@pytest.fixture
def sound(tmp_path: Path) -> Path:
    rng = np.random.default_rng(1)
    tensors = {
        f"blk.0.{f.name}": (quantize(rng.normal(size=(4, 512)), f), f)
        for f in (*QUANTIZED, Format.F32, Format.F16, Format.BF16)
    }
    tensors["norm"] = (rng.normal(size=96).astype(np.float32), Format.F32)
    metadata = {
        "llama.block_count": 2,
        "llama.rope.freq_base": 1e4,
        "tokenizer.ggml.tokens": ["a", "ü"],
        "tokenizer.ggml.scores": [0.5, -1.0],
        "tokenizer.ggml.add_bos_token": False,
    }
    return write_gguf(tmp_path / "sound.gguf", "llama", metadata, tensors)


def test_a_file_reads_as_the_library_reads_it(sound: Path) -> None:
    checkpoint = open_checkpoint(sound)
    library = {t.name: t for t in gguf.GGUFReader(sound).tensors}
    assert set(checkpoint) == set(library)
    for tensor in checkpoint.values():
        theirs = library[tensor.name]
        assert tensor.format == theirs.tensor_type
        assert tensor.shape == tuple(reversed(theirs.shape.tolist()))
        assert tensor.bytes.tobytes() == theirs.data.tobytes()
        assert tensor.bytes.shape == (tensor.rows, row_bytes(tensor.format, tensor.columns))
        want = gguf.quants.dequantize(theirs.data, theirs.tensor_type).reshape(tensor.shape)
        np.testing.assert_array_equal(dequantize(tensor), want)


def test_metadata_comes_whole_and_the_architecture_s_part_by_plain_keys(sound: Path) -> None:
    checkpoint = open_checkpoint(sound)
    assert (checkpoint.kind, checkpoint.architecture) == ("gguf", "llama")
    assert checkpoint.config == {"block_count": 2, "rope.freq_base": 1e4}
    assert checkpoint.metadata["tokenizer.ggml.tokens"] == ["a", "ü"]
    assert checkpoint.metadata["tokenizer.ggml.scores"] == [0.5, -1.0]
    assert checkpoint.metadata["tokenizer.ggml.add_bos_token"] is False


def test_data_is_a_read_only_view_of_the_file(sound: Path) -> None:
    tensor = open_checkpoint(sound)["blk.0.F32"]
    with pytest.raises(ValueError, match="read-only"):
        tensor.data[0, 0] = 1
    assert tensor.data.base is not None


def test_the_bytes_of_all_formats_add_up(sound: Path) -> None:
    checkpoint = open_checkpoint(sound)
    assert sum(t.nbytes for t in checkpoint.values()) == checkpoint.nbytes
    assert sum(checkpoint.formats().values()) == checkpoint.nbytes


def test_some_rows_dequantise_without_the_others(sound: Path) -> None:
    tensor = open_checkpoint(sound)["blk.0.Q4_K"]
    rows = np.array([2, 0])
    np.testing.assert_array_equal(dequantize(tensor, rows), dequantize(tensor)[rows])


def test_a_missing_tensor_is_named(sound: Path) -> None:
    with pytest.raises(CheckpointError, match=r"sound\.gguf has no tensor output\.weight"):
        open_checkpoint(sound).require("output.weight")


def test_an_unsupported_format_is_refused_when_asked_for_only(tmp_path: Path) -> None:
    tensors = [raw_tensor("odd", [256], Format.IQ4_XS, 0), raw_tensor("fine", [8], Format.F32, 160)]
    path = tmp_path / "odd.gguf"
    path.write_bytes(raw_gguf(tensors=tensors, data=bytes(192)))
    checkpoint = read_gguf(path)
    assert checkpoint["fine"].data.tolist() == [0.0] * 8
    with pytest.raises(UnsupportedModel, match=r"odd is stored as IQ4_XS; take a file .*Q4_K"):
        checkpoint["odd"]


F32 = int(Format.F32)
LIES = {
    "empty": b"",
    "another magic": raw_gguf(magic=b"GGML"),
    "version 1": raw_gguf(version=1),
    "big-endian": raw_gguf(version=3 << 24),
    "no architecture": raw_gguf(entries=()),
    "architecture of a number": raw_gguf([raw_entry("general.architecture", 4, U32(7))]),
    "2^63 tensors": raw_gguf(tensor_count=1 << 63),
    "2^63 entries": raw_gguf(entry_count=1 << 63),
    "one entry more than there is": raw_gguf(entry_count=2),
    "one tensor more than there is": raw_gguf(tensor_count=1),
    "a string of 2^64-1 bytes": raw_gguf([raw_entry("k", 8, raw_string(b"", 2**64 - 1))]),
    "an array of 2^60 numbers": raw_gguf([raw_entry("k", 9, U32(4) + U64(1 << 60))]),
    "an array of 2^60 strings": raw_gguf([raw_entry("k", 9, U32(8) + U64(1 << 60))]),
    "an array of arrays of arrays": raw_gguf([raw_entry("k", 9, (U32(9) + U64(1)) * 10_000)]),
    "an unknown value type": raw_gguf([raw_entry("k", 99, b"\0" * 8)]),
    "a key twice": raw_gguf([ARCHITECTURE, ARCHITECTURE]),
    "a key that isn't UTF-8": raw_gguf([raw_string(b"\xff") + U32(4) + U32(1)]),
    "alignment 0": raw_gguf([ARCHITECTURE, raw_entry("general.alignment", 4, U32(0))]),
    "alignment 24": raw_gguf([ARCHITECTURE, raw_entry("general.alignment", 4, U32(24))]),
    "alignment of text": raw_gguf(
        [ARCHITECTURE, raw_entry("general.alignment", 8, raw_string("x"))]
    ),
    "one of three parts": raw_gguf([ARCHITECTURE, raw_entry("split.count", 2, b"\3\0")]),
    "a tensor past the end": raw_gguf(tensors=[raw_tensor("t", [8], F32, 32)], data=bytes(32)),
    "a tensor at 2^64-32": raw_gguf(
        tensors=[raw_tensor("t", [8], F32, 2**64 - 32)], data=bytes(32)
    ),
    "a tensor unaligned": raw_gguf(tensors=[raw_tensor("t", [8], F32, 4)], data=bytes(64)),
    "a tensor cut short": raw_gguf(tensors=[raw_tensor("t", [16], F32, 0)], data=bytes(63)),
    "dimensions that overflow 64 bits": raw_gguf(
        tensors=[raw_tensor("t", [1 << 33, 1 << 33], F32, 0)], data=bytes(64)
    ),
    "no dimension": raw_gguf(tensors=[raw_tensor("t", [], F32, 0)], data=bytes(64)),
    "2^32-1 dimensions": raw_gguf(tensors=[raw_string("t") + U32(2**32 - 1)], data=bytes(64)),
    "a dimension of 0": raw_gguf(tensors=[raw_tensor("t", [0, 8], F32, 0)], data=bytes(64)),
    "a row of half a block": raw_gguf(tensors=[raw_tensor("t", [16], 8, 0)], data=bytes(64)),
    "a removed type": raw_gguf(tensors=[raw_tensor("t", [32], 4, 0)], data=bytes(64)),
    "a type of the future": raw_gguf(tensors=[raw_tensor("t", [32], 9999, 0)], data=bytes(64)),
    "a tensor twice": raw_gguf(
        tensors=[raw_tensor("t", [8], F32, 0), raw_tensor("t", [8], F32, 32)], data=bytes(64)
    ),
    "tensors that overlap": raw_gguf(
        tensors=[raw_tensor("t", [16], F32, 0), raw_tensor("u", [8], F32, 32)], data=bytes(64)
    ),
}


@pytest.mark.parametrize("lie", LIES)
def test_a_lying_file_is_refused_by_name_within_bounded_memory(lie: str, tmp_path: Path) -> None:
    path = tmp_path / "lie.gguf"
    path.write_bytes(LIES[lie])
    tracemalloc.start()
    with pytest.raises(CheckpointError, match=r"lie\.gguf"):
        read_gguf(path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 4 << 20


@given(seed=st.integers(0, 2**32), cut=st.integers(0, 1500), flips=st.integers(0, 6))
@settings(max_examples=300, deadline=2000)
def test_random_damage_is_either_refused_or_harmless(
    seed: int, cut: int, flips: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    entries = [
        ARCHITECTURE,
        raw_entry(
            "tokens", 9, U32(8) + U64(3) + raw_string("a") + raw_string("bc") + raw_string("")
        ),
        raw_entry("scores", 9, U32(6) + U64(3) + bytes(12)),
        raw_entry("general.alignment", 4, U32(32)),
    ]
    tensors = [raw_tensor("t", [32, 4], 8, 0), raw_tensor("u", [8], F32, 160)]
    data = bytearray(raw_gguf(entries, tensors, bytes(192)))
    rng = np.random.default_rng(seed)
    for _ in range(flips):
        data[int(rng.integers(len(data)))] = int(rng.choice([0, 1, 8, 9, 127, 128, 255]))
    path = tmp_path_factory.getbasetemp() / "damaged.gguf"
    path.write_bytes(bytes(data[: len(data) - cut] if cut < len(data) else b""))
    try:
        checkpoint = read_gguf(path)
    except CheckpointError:
        return
    for name in checkpoint:
        try:
            assert checkpoint[name].nbytes <= len(data)
        except UnsupportedModel:
            continue


def test_formats_and_types_are_the_librarys() -> None:
    for theirs in gguf.GGMLQuantizationType:
        ours = Format(int(theirs))
        assert (ours.name, block_shape(ours)) == (theirs.name, gguf.GGML_QUANT_SIZES[theirs])
    assert [(k.name, int(k)) for k in Kind] == [(k.name, int(k)) for k in gguf.GGUFValueType]
    assert {t.name: int(t) for t in TokenType} == {t.name: int(t) for t in gguf.TokenType}
