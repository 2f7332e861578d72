"""The tiny checkpoints: the same model in both kinds of file, the same bytes each time."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from flatwake_service.text import load_template, load_tokenizer
from flatwake_service.weights import Format, open_checkpoint
from flatwake_service.weights.dequantize import dequantize
from tiny_gguf import QUANTS, _interleave, _rename, write_tiny_gguf
from tiny_models import TINY, write_tiny


@pytest.mark.parametrize("name", TINY)
def test_both_files_hold_the_same_weights_tokenizer_and_template(name: str, tmp_path: Path) -> None:
    folder = open_checkpoint(write_tiny(tmp_path / "hf", name))
    file = open_checkpoint(write_tiny_gguf(tmp_path / "m.gguf", name))
    tiny = TINY[name]
    assert len(file) == len(folder) + ("rope_scaling" in tiny.config)
    for tensor in folder.values():
        name, values = _rename(tensor.name), dequantize(tensor)
        if tiny.model_type in ("llama", "mistral"):
            values = _interleave(name, values, tiny)
        other = file.require(name)
        assert tensor.shape == other.shape
        np.testing.assert_array_equal(values, dequantize(other))
    ours, theirs = load_tokenizer(folder), load_tokenizer(file)
    text = "It's 2024: café 日本 🎉\n\n  def f(x):\n"
    assert ours.encode(text) == theirs.encode(text)
    assert (ours.size, ours.eos_ids) == (theirs.size, theirs.eos_ids)
    assert ours.size < folder.config["vocab_size"], "the vocabulary is padded"
    hello = [{"role": "user", "content": "Hello"}]
    templates = [load_template(folder, ours.names), load_template(file, theirs.names)]
    assert len({t.render(hello) for t in templates if t}) == 1


@pytest.mark.parametrize("format_", QUANTS, ids=lambda f: f.name)
def test_a_quantised_file_stays_near_the_weights(format_: Format, tmp_path: Path) -> None:
    exact = open_checkpoint(write_tiny_gguf(tmp_path / "exact.gguf", "llama3-wide"))
    near = open_checkpoint(write_tiny_gguf(tmp_path / "near.gguf", "llama3-wide", format_))
    for tensor in near.values():
        assert tensor.format == (format_ if len(tensor.shape) == 2 else Format.F32)
        want = dequantize(exact[tensor.name])
        error = np.abs(dequantize(tensor) - want).max() / np.abs(want).max()
        assert error < 0.15


def test_the_same_seed_gives_the_same_bytes(tmp_path: Path) -> None:
    first = write_tiny(tmp_path / "a", "qwen3", seed=3)
    second = write_tiny(tmp_path / "b", "qwen3", seed=3)
    other = write_tiny(tmp_path / "c", "qwen3", seed=4)
    for path in first.iterdir():
        assert path.read_bytes() == (second / path.name).read_bytes()
    name = "model.safetensors"
    assert (first / name).read_bytes() != (other / name).read_bytes()
