"""What a model's own generation_config.json says of sampling."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from flatwake_service.errors import CheckpointError
from flatwake_service.http.language import load_language
from flatwake_service.text import SamplingDefaults, load_sampling_defaults
from flatwake_service.weights import open_checkpoint
from tiny_gguf import write_tiny_gguf
from tiny_models import write_tiny


def folder_saying(folder: Path, **values: Any) -> Path:
    write_tiny(folder, "smollm2")
    path = folder / "generation_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | values))
    return folder


def test_a_folders_values_are_the_models_defaults(tmp_path: Path) -> None:
    # Qwen3's own, with what transformers writes beside them.
    folder = folder_saying(
        tmp_path, do_sample=True, temperature=0.6, top_k=20, top_p=0.95, pad_token_id=0
    )
    assert load_language(folder, None).sampling == SamplingDefaults(0.6, 0.95, 20)


def test_all_five_are_read(tmp_path: Path) -> None:
    stated = {"temperature": 0, "top_p": 0.5, "top_k": 7.0, "min_p": 0.05}
    folder = folder_saying(tmp_path, **stated, repetition_penalty=1.1)
    assert load_sampling_defaults(open_checkpoint(folder)) == SamplingDefaults(0, 0.5, 7, 0.05, 1.1)


def test_a_folder_that_says_nothing_and_a_gguf_file_have_openais(tmp_path: Path) -> None:
    folder = write_tiny(tmp_path / "hf", "smollm2")
    assert load_sampling_defaults(open_checkpoint(folder)) == SamplingDefaults()
    (folder / "generation_config.json").unlink()
    assert load_sampling_defaults(open_checkpoint(folder)) == SamplingDefaults()
    file = write_tiny_gguf(tmp_path / "m.gguf", "smollm2")
    assert load_sampling_defaults(open_checkpoint(file)) == SamplingDefaults()


@pytest.mark.parametrize(
    ("name", "value"),
    [("temperature", "hot"), ("temperature", -1), ("top_p", 1.5), ("top_k", 2.5), ("min_p", True)],
)
def test_a_value_that_cannot_be_sampled_with_is_named(
    name: str, value: object, tmp_path: Path
) -> None:
    folder = folder_saying(tmp_path, **{name: value})
    with pytest.raises(CheckpointError, match=rf"generation_config.json: {name} is {value}, not "):
        load_sampling_defaults(open_checkpoint(folder))
