"""A step uploads what changed alone: sampling has moved every row on, on the device itself."""

from __future__ import annotations

from pathlib import Path

import pytest
from flatwake_service.engine import drive
from flatwake_service.engine.config import EngineConfig
from flatwake_service.engine.runner import Runner, open_runner
from flatwake_service.engine.sequence import Sequence

MODEL = Path(__file__).parents[2] / "fixtures" / "hybrid" / "model"
PROMPTS = [list(range(20, 33)), list(range(40, 71)), [50, 51, 52]]
STEPS = 40


class Uploads:
    """Counts a runner's uploads of decode rows; with `always`, each step uploads again."""

    def __init__(self, runner: Runner, monkeypatch: pytest.MonkeyPatch, *, always: bool) -> None:
        self.count = 0
        upload = runner._decode.inputs.upload

        def counted() -> None:
            self.count += 1
            upload()

        monkeypatch.setattr(runner._decode.inputs, "upload", counted)
        if always:
            monkeypatch.setattr(f"{Runner.__module__}.continues", lambda rows, spans: False)


def _run(monkeypatch: pytest.MonkeyPatch, *, always: bool) -> tuple[list[list[int]], int]:
    """Three sequences, of which the middle one leaves halfway; their ids, and the uploads."""
    config = EngineConfig(model=str(MODEL), backend="cpu", context_length=256)
    runner = open_runner(config, lambda *_: None)
    uploads = Uploads(runner, monkeypatch, always=always)
    sequences: list[Sequence] = drive.place(runner, PROMPTS, 2 * STEPS)
    for sequence in sequences:
        drive.follow(drive.prefill(runner, sequence))
    for _ in range(STEPS):
        drive.follow(drive.decode(runner, sequences))
    left = [sequences[0], sequences[2]]
    for _ in range(STEPS // 2):
        drive.follow(drive.decode(runner, left))
    sequences[0].ids[-1] = 7  # led elsewhere, as the exactness gate does
    drive.follow(drive.decode(runner, left))
    runner.close()
    return [s.ids for s in sequences], uploads.count


def test_rows_that_continue_are_not_uploaded_and_give_the_same_tokens(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found, uploads = _run(monkeypatch, always=False)
    wanted, every = _run(monkeypatch, always=True)
    assert found == wanted
    assert every == STEPS + STEPS // 2 + 1
    # At the start, when one leaves, and when one is led elsewhere.
    assert uploads == 3
