"""What a checkpoint may hold, what it is refused for, and how far its loading is said to be."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flatwake_kernels.reference.backend import ReferenceBackend
from flatwake_service.cli import verify
from flatwake_service.engine.config import EngineConfig
from flatwake_service.engine.runner import Runner, open_runner
from flatwake_service.errors import UnsupportedModel
from flatwake_service.models import config, hybrid_config
from flatwake_service.models.load import Loader
from flatwake_service.weights import open_checkpoint
from tiny_models import write_tiny

HYBRID = Path(__file__).parents[2] / "fixtures" / "hybrid" / "model"


def configure(folder: Path, **keys: Any) -> Path:
    """Set keys of a folder's config.json; Ellipsis removes one."""
    path = folder / "config.json"
    values = json.loads(path.read_text()) | keys
    path.write_text(json.dumps({k: v for k, v in values.items() if v is not ...}))
    return folder


def add_tensor(folder: Path, name: str, dtype: str, rows: int, columns: int) -> None:
    """Append a tensor of zero bytes, or put it in place of one of that name."""
    path = folder / "model.safetensors"
    data = path.read_bytes()
    end = 8 + int.from_bytes(data[:8], "little")
    header = json.loads(data[8:end])
    width = {"I8": 1, "F8_E4M3": 1, "F64": 8}[dtype]
    begin, size = len(data) - end, rows * columns * width
    header.pop(name, None)
    header[name] = {
        "dtype": dtype,
        "shape": [rows, columns],
        "data_offsets": [begin, begin + size],
    }
    # The reader wants no gap: what the name had before goes on under another.
    taken = {tuple(e["data_offsets"]) for k, e in header.items() if k != "__metadata__"}
    before = sorted(taken)
    for (_, last), (first, _) in zip([(0, 0), *before], before, strict=False):
        if first != last:
            shape, offsets = [first - last], [last, first]
            header["unused"] = {"dtype": "I8", "shape": shape, "data_offsets": offsets}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(len(text).to_bytes(8, "little") + text + data[end:] + bytes(size))


def open_reference(folder: Path, said: list[tuple[str, int, int]] | None = None) -> Runner:
    heard = [] if said is None else said
    return open_runner(
        EngineConfig(model=str(folder), backend="reference", context_length=16, max_sequences=1,
                     prefill_tokens=64),
        lambda *progress: heard.append(progress),
    )  # fmt: skip


@pytest.mark.parametrize("method", ["bitsandbytes", "awq", "gptq"])
def test_a_quantisers_own_layout_is_refused_by_its_name(method: str, tmp_path: Path) -> None:
    folder = configure(write_tiny(tmp_path, "qwen2"), quantization_config={"quant_method": method})
    with pytest.raises(UnsupportedModel) as refused:
        open_reference(folder)
    assert f"quantization_config (quant_method {method})" in str(refused.value)
    assert "unquantised repository, or a GGUF file" in refused.value.cure


def test_a_nested_configurations_quantiser_is_refused_too(tmp_path: Path) -> None:
    text = json.loads((HYBRID / "config.json").read_text())
    text = text.get("text_config", text) | {"quantization_config": {"quant_method": "fp8"}}
    for file in HYBRID.iterdir():
        (tmp_path / file.name).symlink_to(file)
    (tmp_path / "config.json").unlink()
    whole = {"architectures": ["Qwen3_5ForConditionalGeneration"], "text_config": text}
    (tmp_path / "config.json").write_text(json.dumps(whole))
    with pytest.raises(UnsupportedModel, match=r"quantization_config \(quant_method fp8\)"):
        hybrid_config.read_config(open_checkpoint(tmp_path))


@pytest.mark.parametrize("dtype", ["I8", "F64", "F8_E4M3"])
def test_a_layer_stored_as_something_else_is_refused_by_its_tensors_name(
    dtype: str, tmp_path: Path
) -> None:
    name = "model.layers.0.mlp.down_proj.weight"
    add_tensor(write_tiny(tmp_path, "qwen2"), name, dtype, 64, 160)
    loader = Loader(open_checkpoint(tmp_path), ReferenceBackend(), "float", lambda *_: None)
    with pytest.raises(UnsupportedModel, match=f"{name} is stored as {dtype}"):
        loader.linear([name], [64], 160)


def test_tensors_that_the_model_doesnt_use_may_be_stored_as_anything(tmp_path: Path) -> None:
    folder = write_tiny(tmp_path, "qwen2")
    for dtype in ("I8", "F64", "F8_E4M3"):
        add_tensor(folder, f"visual.{dtype}.weight", dtype, 8, 8)
    said: list[tuple[str, int, int]] = []
    runner = open_reference(folder, said)
    assert runner.kv_dtype.name == "F32"
    assert not verify._quantised(folder)
    runner.close()
    loading = [(done, total) for phase, done, total in said if phase == "loading"]
    total = open_checkpoint(folder).nbytes
    assert loading[-1] == (total, total)
    assert loading == sorted(loading)
    assert runner.model_bytes == total


def test_loading_the_hybrid_reaches_its_total() -> None:
    said: list[tuple[str, int, int]] = []
    runner = open_reference(HYBRID, said)
    checkpoint = open_checkpoint(HYBRID)
    total = checkpoint.nbytes
    used = sum(t.nbytes for name, t in checkpoint.items() if not name.startswith("mtp."))
    loading = [done for phase, done, _ in said if phase == "loading"]
    assert loading[-2:] == [used, total]
    assert 0 < used < total, "the fixture has tensors that aren't used"
    assert runner.model_bytes == total
    runner.close()


@pytest.mark.parametrize(
    ("name", "keys", "context"),
    [
        # As transformers' configurations have it, defaults included.
        ("qwen2", {"use_sliding_window": ..., "sliding_window": 128}, 512),
        ("qwen2", {"use_sliding_window": False, "sliding_window": 128}, 512),
        ("qwen2", {"use_sliding_window": True, "sliding_window": 128}, 128),
        ("qwen3", {"sliding_window": 128}, 512),
        ("mistral", {"sliding_window": 128}, 128),
        ("mistral", {"sliding_window": None}, 512),
        ("mistral", {"sliding_window": ..., "max_position_embeddings": 32768}, 4096),
        ("smollm2", {"sliding_window": 128}, 512),
    ],
)
def test_a_sliding_window_cuts_the_context_where_the_model_slides(
    name: str, keys: dict[str, Any], context: int, tmp_path: Path
) -> None:
    folder = configure(write_tiny(tmp_path, name), **keys)
    assert config.read_config(open_checkpoint(folder)).context == context


def test_a_context_above_the_models_is_logged_and_the_models_is_told(tmp_path: Path) -> None:
    folder = write_tiny(tmp_path, "qwen2")
    runner = open_runner(
        EngineConfig(model=str(folder), backend="reference", context_length=100_000,
                     max_sequences=1, prefill_tokens=64),
        lambda *_: None,
    )  # fmt: skip
    assert (runner.context, runner.model_context) == (512, 512)
    assert np.isfinite(runner.bandwidth_bytes)
    runner.close()
