"""`flatwake bench`: the figures are there, and hang together. How high they are is no test."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import numpy as np
import pytest
from flatwake_service.bench.cores import Cores
from flatwake_service.bench.layering import estimate
from flatwake_service.bench.layers import together
from flatwake_service.bench.sockets import Stream
from flatwake_service.cli import main as cli
from flatwake_service.engine import drive
from flatwake_service.engine.config import EngineConfig
from flatwake_service.engine.runner import open_runner
from flatwake_service.text import load_tokenizer
from flatwake_service.weights import open_checkpoint
from tiny_models import write_tiny


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(write_tiny(tmp_path_factory.mktemp("model"), "qwen2"))


def run(name: str, model: str, output: Path, *more: str) -> dict[str, object]:
    options = ("--backend", "reference", "--rounds", "1", "--tokens", "8", *more)
    with pytest.raises(SystemExit) as ended:
        cli.main(["bench", name, model, *options, "--output", str(output)])
    assert ended.value.code == 0
    return json.loads(output.read_text())


def test_speed(model: str, tmp_path: Path) -> None:
    found = run("speed", model, tmp_path / "speed.json")
    assert set(found) >= {"date", "commit", "machine", "versions", "command"}
    assert found["prefill_tokens_per_second"] > 0
    assert set(found["decode_tokens_per_second"]) == {"1", "4", "8"}
    assert all(0 < share < 10 for share in found["bandwidth_share"].values())
    assert found["read_bytes_per_second"] > 0
    linear = found["ops"]["decode 8"]["linear"]
    assert linear["calls"] > 1
    assert linear["gb_s"] > 0
    assert linear["gflop_s"] > 0


def test_perplexity_is_that_of_each_position_alone(model: str, tmp_path: Path) -> None:
    """Against a prompt of its own for every scored token."""
    output, text = tmp_path / "perplexity.json", tmp_path / "text.txt"
    text.write_text("The quick brown fox jumps over the lazy dog. " * 40)
    options = ("--backend", "reference", "--chunks", "3", "--length", "12", "--text", str(text))
    with pytest.raises(SystemExit) as ended:
        cli.main(["bench", "perplexity", model, *options, "--output", str(output)])
    assert ended.value.code == 0
    found = json.loads(output.read_text())
    assert found["tokens"] == 3 * 5
    config = EngineConfig(model=model, backend="reference", activations="float", context_length=16)
    runner = open_runner(config, lambda phase, done, total: None)
    ids = load_tokenizer(open_checkpoint(model)).encode(text.read_text(), add_special=False)
    loss = []
    for chunk in (ids[0:12], ids[12:24], ids[24:36]):
        for position in range(6, 11):
            (sequence,) = drive.place(runner, [chunk[: position + 1]], 1)
            drive.prefill(runner, sequence)
            logits = runner.logits(1)[0].astype(np.float64)
            loss.append(np.log(np.exp(logits).sum()) - logits[chunk[position + 1]])
    runner.close()
    assert found["perplexity"]["float"] == pytest.approx(np.exp(np.mean(loss)), rel=1e-4)


@pytest.mark.parametrize("backend", ["hip", "cuda"])
def test_a_backend_that_isnt_there_is_one_clear_error(
    model: str, backend: str, capsys: pytest.CaptureFixture[str], tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setenv("FLATWAKE_LIBRARY_DIR", str(tmp_path))
    assert cli.main(["bench", "speed", model, "--backend", backend]) == 1
    said = capsys.readouterr().err
    assert said.startswith(f"flatwake bench: libflatwake_{backend}.so is not in {tmp_path}")


def test_layers(model: str, tmp_path: Path) -> None:
    found = run("layers", model, tmp_path / "layers.json")
    for users in ("1", "4", "8"):
        a, b, c = (found[f"{name}_tokens_per_second"][users] for name in "ABC")
        assert found["B_ratio"][users] == pytest.approx(b / a, rel=0.01)
        assert found["C_ratio"][users] == pytest.approx(c / a, rel=0.01)
        assert found["first_token_seconds"][users] > 0


def test_a_stand_in_emits_at_its_pace_through_every_layer(model: str, tmp_path: Path) -> None:
    words = ("--stand-in", "50", "--stamps", "--tokens", "20")
    found = run("layers", model, tmp_path / "layers.json", *words)
    for users in ("1", "4", "8"):
        a, b, c = (found[f"{name}_tokens_per_second"][users] for name in "ABC")
        assert a == 50 * int(users)
        # It never emits faster than it is told to; a busy machine may make it slower.
        assert 0 < b <= 1.1 * a
        assert 0 < c <= 1.1 * a
        assert found["layer_cost_pct"][users]["value"] == pytest.approx(100 * (1 - c / b), abs=0.1)
        delay, message = found["token_delay_ms"][users], found["message_delay_ms"][users]
        assert 0 < message["p50"] < delay["p99"]
        assert found["C_processor_us_per_token"][users] >= 0


def test_an_estimate_holds_the_median_by_the_order_of_the_values() -> None:
    assert estimate([3.0, 1.0, 2.0]) == {"value": 2.0, "interval": [1.0, 3.0]}
    # Of nine values, the second and the eighth: 96 %.
    assert estimate(range(9)) == {"value": 4, "interval": [1, 7]}


def test_the_engine_and_the_others_have_cores_apart() -> None:
    mine = os.sched_getaffinity(0)
    if len(mine) < 2:
        with pytest.raises(ValueError, match="only one"):
            Cores.apart()
        return
    cores = Cores.apart()
    try:
        with cores.as_engine():
            assert os.sched_getaffinity(0) == cores.engine
        assert os.sched_getaffinity(0) == cores.others == mine - cores.engine
    finally:
        os.sched_setaffinity(0, mine)


def test_only_the_window_in_which_all_decode_counts() -> None:
    early, late = [0.0, 1.0, 2.0, 3.0], [1.0, 1.5, 2.0, 2.5, 4.0]
    assert together([early, late]) == (2 + 3) / (3.0 - 1.0)


def test_an_event_that_is_cut_in_two_counts_once() -> None:
    class Pieces:
        def __init__(self, pieces: list[bytes]) -> None:
            self.pieces = pieces

        def recv(self, size: int) -> bytes:
            return self.pieces.pop(0)

    stamp = time.monotonic() - 1.0
    whole = b': stamp %.6f\n\ndata: {"a":1}\n\ndata: {"b":2}\n\ndata: [DONE]\n\n' % stamp
    for cut in range(1, len(whole)):
        stream = Stream(Pieces([whole[:cut], whole[cut:]]))
        goes_on = stream.read()
        assert not (goes_on and stream.read())
        assert stream.complete
        assert len(stream.times) == 2, whole[:cut]
        assert stream.delays == [pytest.approx(1.0, abs=0.5)], whole[:cut]


def test_events_are_no_tokens() -> None:
    """A server holds back unfinished characters, and tells an end by an event of its own."""
    each = [0.0, 1.0, 2.0, 3.0, 4.0]
    assert together([each, each]) == 2.0
    assert together([each, each], tokens=5) == 2.0
    assert together([[0.0, 2.0, 4.0], [0.0, 1.0, 2.0, 3.0, 4.0, 4.0]], tokens=5) == 2.0
