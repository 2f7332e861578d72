"""Hugging Face folders: single, sharded, and every way in which they can lie."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flatwake_kernels.dtype import narrow_bf16
from flatwake_service.errors import CheckpointError, UnsupportedModel
from flatwake_service.weights import Format, open_checkpoint
from flatwake_service.weights.dequantize import dequantize
from flatwake_service.weights.safetensors import read_safetensors
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.numpy import save_file

CONFIG = {"architectures": ["LlamaForCausalLM"], "hidden_size": 8}


def raw(header: Any, data: bytes = b"", length: int | None = None) -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return (len(text) if length is None else length).to_bytes(8, "little") + text + data


def entry(dtype: str, shape: list[Any], begin: Any, end: Any) -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


def folder(path: Path, files: dict[str, bytes], config: Any = CONFIG) -> Path:
    path.mkdir(exist_ok=True)
    (path / "config.json").write_text(json.dumps(config))
    for name, data in files.items():
        (path / name).write_bytes(data)
    return path


def test_a_file_of_the_library_reads_the_same(tmp_path: Path) -> None:
    rng = np.random.default_rng(5)
    arrays = {
        "a": rng.normal(size=(3, 8)).astype(np.float32),
        "b": rng.normal(size=(5,)).astype(np.float16),
        "c": np.arange(4, dtype=np.int64),
        "scalar": np.array(2.5, dtype=np.float32),
        "empty": np.zeros((0, 4), np.float32),
    }
    save_file(arrays, folder(tmp_path, {}) / "model.safetensors", metadata={"format": "pt"})
    checkpoint = open_checkpoint(tmp_path)
    assert (checkpoint.kind, checkpoint.architecture) == ("safetensors", "LlamaForCausalLM")
    assert checkpoint.config["hidden_size"] == 8
    assert checkpoint.metadata == {"format": "pt"}
    for name, want in arrays.items():
        np.testing.assert_array_equal(checkpoint[name].data, want)
        assert checkpoint[name].shape == want.shape


def test_bf16_is_mapped_as_bits_and_widens(tmp_path: Path) -> None:
    bits = narrow_bf16(np.array([[1.5, -2.0]], dtype=np.float32))
    data = raw({"w": entry("BF16", [1, 2], 0, 4)}, bits.tobytes())
    tensor = read_safetensors(folder(tmp_path, {"model.safetensors": data}))["w"]
    assert (tensor.format, tensor.data.dtype) == (Format.BF16, np.uint16)
    assert dequantize(tensor).tolist() == [[1.5, -2.0]]


def test_unaligned_data_is_still_right_and_aligned_for_kernels(tmp_path: Path) -> None:
    values = np.array([3.0, 4.0], dtype=np.float32)
    header = {"w": entry("F32", [2], 0, 8)}
    text = json.dumps(header).encode()
    text += b" " * ((1 - len(text)) % 4)
    folder(tmp_path, {"model.safetensors": raw(text, values.tobytes())})
    tensor = read_safetensors(tmp_path)["w"]
    assert tensor.data.tolist() == [3.0, 4.0]
    assert tensor.data.flags.aligned


def test_shards_are_read_through_their_index(tmp_path: Path) -> None:
    one = raw({"a": entry("F32", [1], 0, 4)}, np.float32(1).tobytes())
    two = raw({"b": entry("F32", [1], 0, 4)}, np.float32(2).tobytes())
    index = {"weight_map": {"a": "x-1.safetensors", "b": "x-2.safetensors"}}
    files = {
        "x-1.safetensors": one,
        "x-2.safetensors": two,
        "consolidated.safetensors": raw({"a": entry("F32", [1], 0, 4)}, np.float32(9).tobytes()),
        "model.safetensors.index.json": json.dumps(index).encode(),
    }
    checkpoint = open_checkpoint(folder(tmp_path, files))
    assert {n: checkpoint[n].data.item() for n in checkpoint} == {"a": 1.0, "b": 2.0}
    assert list(checkpoint) == ["a", "b"]
    assert checkpoint.nbytes == 8


@pytest.mark.parametrize(
    ("weight_map", "message"),
    [
        ({"a": "../secret"}, "isn't a file of its folder"),
        ({"a": ".."}, "isn't a file of its folder"),
        ({"a": 3}, "isn't a file of its folder"),
        ({}, "has no weight_map"),
        ({"a": "missing.safetensors"}, r"there is no .*missing\.safetensors"),
        ({"z": "x.safetensors"}, r"says that z is in x\.safetensors, which lacks it"),
    ],
)
def test_an_index_that_lies_is_refused(tmp_path: Path, weight_map: Any, message: str) -> None:
    index = json.dumps({"weight_map": weight_map}).encode()
    files = {"x.safetensors": raw({}), "model.safetensors.index.json": index}
    with pytest.raises(CheckpointError, match=message):
        read_safetensors(folder(tmp_path, files))


def test_fp8_weights_are_refused_when_asked_for(tmp_path: Path) -> None:
    data = raw({"w": entry("F8_E4M3", [4], 0, 4)}, bytes(4))
    checkpoint = read_safetensors(folder(tmp_path, {"model.safetensors": data}))
    with pytest.raises(UnsupportedModel, match="w is stored as F8_E4M3"):
        checkpoint["w"]


@pytest.mark.parametrize("config", [{}, {"architectures": []}, {"architectures": [3]}, [1]])
def test_a_config_without_an_architecture_is_refused(tmp_path: Path, config: Any) -> None:
    with pytest.raises(CheckpointError, match=r"config\.json"):
        read_safetensors(folder(tmp_path, {"model.safetensors": raw({})}, config))


def test_a_folder_without_a_model_says_what_is_missing(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="no GGUF files and no safetensors; give a GGUF file"):
        open_checkpoint(tmp_path)


LIES = {
    "empty": b"",
    "seven bytes": bytes(7),
    "a header of 2^64-1 bytes": raw({}, length=2**64 - 1),
    "a header one byte too long": raw({}, length=3),
    "no JSON": raw(b"{"),
    "no object": raw([1]),
    "not UTF-8": raw(b'{"\xff": 1}'),
    "deeply nested": raw(b'{"a":' * 100_000),
    "a number of a million digits": raw(b'{"a":' + b"9" * 1_000_000 + b"}"),
    "metadata of a number": raw({"__metadata__": 3}),
    "a tensor twice": raw(b'{"a": 1, "a": 2}'),
    "no form": raw({"w": 3}),
    "three offsets": raw(
        {"w": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4, 8]}}, bytes(8)
    ),
    "an offset of text": raw({"w": entry("F32", [1], "0", 4)}, bytes(4)),
    "an offset of a fraction": raw({"w": entry("F32", [1], 0, 4.0)}, bytes(4)),
    "a negative offset": raw({"w": entry("F32", [1], -4, 0)}, bytes(4)),
    "a negative size": raw({"w": entry("F32", [-1, -1], 0, 4)}, bytes(4)),
    "a size of true": raw({"w": entry("F32", [True], 0, 4)}, bytes(4)),
    "nine dimensions": raw({"w": entry("F32", [1] * 9, 0, 4)}, bytes(4)),
    "sizes of 2^200": raw({"w": entry("F32", [2**200, 0], 0, 0)}),
    "shape and bytes that differ": raw({"w": entry("F32", [2], 0, 4)}, bytes(8)),
    "an unknown type": raw({"w": entry("F3", [1], 0, 4)}, bytes(4)),
    "data past the end": raw({"w": entry("F32", [2], 0, 8)}, bytes(4)),
    "tensors that overlap": raw(
        {"w": entry("F32", [2], 0, 8), "v": entry("F32", [1], 4, 8)}, bytes(8)
    ),
}


@pytest.mark.parametrize("lie", LIES)
def test_a_lying_file_is_refused_by_name(lie: str, tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"model\.safetensors"):
        read_safetensors(folder(tmp_path, {"model.safetensors": LIES[lie]}))


@given(seed=st.integers(0, 2**32), cut=st.integers(0, 400), flips=st.integers(0, 6))
@settings(max_examples=200, deadline=2000)
def test_random_damage_is_either_refused_or_harmless(
    seed: int, cut: int, flips: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    header = {"w": entry("F32", [2, 3], 0, 24), "v": entry("BF16", [4], 24, 32)}
    data = bytearray(raw(header, bytes(32)))
    rng = np.random.default_rng(seed)
    for _ in range(flips):
        data[int(rng.integers(len(data)))] = int(rng.choice(list(b'0129[]{},:"-eF\xff\0')))
    path = tmp_path_factory.getbasetemp() / "damaged"
    folder(path, {"model.safetensors": bytes(data[: max(0, len(data) - cut)])})
    try:
        checkpoint = read_safetensors(path)
    except CheckpointError:
        return
    for name in checkpoint:
        try:
            assert checkpoint[name].nbytes <= len(data)
        except UnsupportedModel:
            continue
