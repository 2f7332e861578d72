"""`flatwake verify`: what it says about what it can't compare with, in one clear error each."""

from __future__ import annotations

from pathlib import Path

import pytest
from flatwake_service.cli import main as cli
from tiny_models import write_tiny

GOLDENS = Path(__file__).parents[1] / "verify" / "goldens"


def test_traces_that_arent_there_are_a_bad_argument(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    missing = tmp_path / "missing.npz"
    with pytest.raises(SystemExit) as ended:
        cli.main(["verify", str(tmp_path), "--traces", str(missing)])
    assert ended.value.code == 2
    assert "does not exist" in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize("data", [b"", b"not an archive", b"PK\x03\x04 cut short"], ids=repr)
def test_a_file_without_traces_is_named(
    data: bytes, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = tmp_path / "traces.npz"
    path.write_bytes(data)
    assert cli.main(["verify", str(tmp_path), "--traces", str(path)]) == 1
    said = capsys.readouterr().err
    assert said.startswith(f"flatwake verify: {path} holds no traces: ")
    assert "--save" in said


def test_a_backend_that_isnt_there_is_named(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FLATWAKE_LIBRARY_DIR", str(tmp_path))
    model = write_tiny(tmp_path / "model", "qwen2")
    words = ["verify", str(model), "--traces", str(GOLDENS / "qwen2.npz"), "--backend", "hip"]
    assert cli.main(words) == 1
    assert capsys.readouterr().err.startswith("flatwake verify: libflatwake_hip.so is not in ")


def test_the_golden_traces_are_equal_with_the_share_that_counts_said(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    model = write_tiny(tmp_path / "model", "qwen2")
    words = ["verify", str(model), "--traces", str(GOLDENS / "qwen2.npz")]
    with pytest.raises(SystemExit) as ended:
        cli.main([*words, "--backend", "reference"])
    assert ended.value.code == 0
    said = capsys.readouterr().out.strip()
    assert said.startswith("equal: float activations beside ")
    assert "at least 80% must" in said
