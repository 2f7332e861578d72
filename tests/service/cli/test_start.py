"""What stands between a command and its first token: the modules that each process imports."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from tiny_gguf import write_tiny_gguf

HEAVY = {
    "asyncio", "fastapi", "gguf", "httpx", "jinja2", "numpy", "prometheus_client", "pydantic",
    "rich", "starlette", "tokenizers", "torch", "uvicorn", "yaml",
}  # fmt: skip


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_gguf(tmp_path_factory.mktemp("model") / "tiny.gguf", "qwen2")


def imported(code: str, *arguments: str) -> set[str]:
    """The heavy modules that a fresh process has after `code`."""
    script = f"import sys\n{code}\nprint(*sorted(set({sorted(HEAVY)!r}) & set(sys.modules)))"
    command = [sys.executable, "-c", script, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def test_the_engine_is_spawned_before_anything_heavy_is_imported() -> None:
    # Tenths of a second each, which the engine's process would start later.
    assert imported("import flatwake_service.cli.serve, flatwake_service.cli.start") == {"asyncio"}


def test_an_api_process_serves_without_numpy(model: Path) -> None:
    code = """
from pathlib import Path
import flatwake_service.cli.start, flatwake_service.http.server
from flatwake_service.http.language import load_language
assert load_language(Path(sys.argv[1]), None).tokenizer.size
"""
    known = imported(code, str(model))
    assert not known & {"gguf", "httpx", "numpy", "rich", "torch", "yaml"}, known
    assert "fastapi" in known


def test_an_engine_loads_a_model_without_what_the_api_needs(model: Path) -> None:
    code = """
import flatwake_service.engine.worker
from flatwake_service.engine.config import EngineConfig
from flatwake_service.engine.runner import open_runner
open_runner(EngineConfig(model=sys.argv[1], backend="reference"), lambda *_: None).close()
"""
    assert imported(code, str(model)) == {"numpy"}
