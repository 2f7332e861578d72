"""The waves that strike the engine: only the server's own, and what a server must do then."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest
from fake_servers import Start, supervised
from flatwake_loadtest.engine import Engine
from flatwake_loadtest.errors import LoadError
from flatwake_loadtest.menu import KINDS, kinds
from test_run import failed, load


@pytest.mark.parametrize("wave", ["kill", "hang"])
def test_a_server_whose_engine_is_struck_comes_back_with_the_same_answers(
    wave: str, tmp_path: Path
) -> None:
    with supervised(tmp_path / "log", "--process", "api", "--engine") as url:
        before = Engine.find(url)
        code, report, _ = load(url, "--short", "--waves", wave, out=tmp_path)
        after = Engine.find(url)
    assert code == 0, failed(report)
    assert before.pid != after.pid
    (played,) = report["waves"]
    assert played["outcomes"]["error"] == 4
    assert played["fell_seconds"] < 1 or wave == "hang"
    assert played["away_seconds"] > 0
    about = {each["about"] for each in report["checks"] if each["wave"] == played["name"]}
    assert "a dead engine's streams end with an error" in about
    assert "greedy answers are the same alone and under load" in about


def test_streams_that_end_without_a_word_fail_the_run(tmp_path: Path) -> None:
    with supervised(tmp_path / "log", "--engine", "--silent-death") as url:
        code, report, _ = load(url, "--short", "--waves", "kill", out=tmp_path)
    assert code == 1
    assert failed(report) == {"a dead engine's streams end with an error"}


def test_only_a_child_of_the_server_is_ever_struck(start: Start) -> None:
    # The fake says that its engine is itself, which is nobody's child but the test's.
    with pytest.raises(LoadError, match="no process of this machine"):
        Engine.find(start("--process", "engine"))


def test_a_server_whose_engine_is_out_of_reach_is_refused_before_the_run(
    steady_server: str, tmp_path: Path
) -> None:
    code, report, said = load(steady_server, "--short", "--waves", "kill", out=tmp_path)
    assert code == 2
    assert "run them beside the server" in " ".join(said.split())
    assert report == {}


def test_what_harms_is_played_only_when_it_is_named() -> None:
    assert {"kill", "hang"}.isdisjoint(KINDS)
    assert kinds("all,kill") == (*KINDS, "kill")


def test_a_strike_hits_the_engine_alone() -> None:
    with subprocess.Popen(["sleep", "infinity"]) as child:
        Engine(os.getpid(), child.pid).strike(signal.SIGKILL)
    assert child.returncode == -signal.SIGKILL
