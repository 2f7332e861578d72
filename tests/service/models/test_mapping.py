"""The model's file beside what a backend made of it."""

from __future__ import annotations

from pathlib import Path

from flatwake_service.engine.config import EngineConfig
from flatwake_service.engine.runner import open_runner
from gguf import GGMLQuantizationType
from tiny_gguf import write_tiny_gguf


def test_weights_are_resident_once(tmp_path: Path) -> None:
    """A library's own copy is all that stays: the file's pages would count a second time."""
    model = write_tiny_gguf(tmp_path / "tiny.gguf", "qwen2", GGMLQuantizationType.Q8_0)
    runner = open_runner(EngineConfig(model=str(model), backend="cpu"), lambda *_: None)
    try:
        assert str(model) not in Path("/proc/self/maps").read_text()
    finally:
        runner.close()
