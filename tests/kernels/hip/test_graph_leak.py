"""`flatwake doctor --graphs`: a runtime that leaks is told from one that doesn't, by running it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from flatwake_service.cli import graphs
from flatwake_service.cli.graphs import Way


def doctor(**variables: object) -> dict[str, dict[str, Any]]:
    """Its findings by name."""
    done = subprocess.run(
        [sys.executable, "-m", "flatwake_service.cli.main", "doctor", "--graphs", "--json"],
        env={**os.environ, **{name: str(value) for name, value in variables.items()}},
        capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    return {finding["name"]: finding for finding in json.loads(done.stdout)["findings"]}


@pytest.mark.parametrize("lost", [0, 16])
def test_a_runtime_that_leaks_with_each_replay_is_told(
    runtime: Path, device_file: Path, lost: int
) -> None:
    found = doctor(FLATWAKE_HIP_RUNTIME=runtime, FLATWAKE_KFD=device_file, FAKE_HIP_GRAPH_LEAK=lost)
    memory = found["graph memory"]
    assert memory["ok"] is (lost == 0), memory
    if lost:
        assert 'spec.engine.graphs to "Off"' in memory["cure"]
    # malloc gives at least 32 bytes for 16.
    host = float(memory["text"].split(" bytes of the host")[0].split()[-1])
    assert lost <= host <= lost * 3 + graphs.LEAK, memory
    assert "µs in a graph" in found["graph speed"]["text"]


def test_a_device_that_fails_says_so(runtime: Path, device_file: Path) -> None:
    found = doctor(
        FLATWAKE_HIP_RUNTIME=runtime, FLATWAKE_KFD=device_file, FAKE_HIP_FAIL="hipGraphLaunch"
    )
    assert found["graphs"]["ok"] is False
    assert "hipGraphLaunch failed: a planted failure" in found["graphs"]["text"]


@pytest.mark.usefixtures("hip_library")
def test_without_a_runtime_it_says_that_this_is_missing() -> None:
    found = doctor(FLATWAKE_HIP_RUNTIME="/nowhere/libamdhip64.so.6")["graphs"]
    assert found["ok"] is False
    assert found["text"].startswith("the HIP runtime is missing")


FLAT = Way(microseconds=2.0, host_bytes=0.01, device_bytes=0.0)


def test_graphs_that_are_slower_are_to_be_off() -> None:
    _, speed = graphs.examine(FLAT, Way(3.0, 0.0, 0.0))
    assert speed.ok is False
    assert '"Off"' in speed.cure


def test_graphs_that_pay_are_to_be_on() -> None:
    memory, speed = graphs.examine(FLAT, Way(1.0, 0.0, 0.0))
    assert (memory.ok, speed.ok) == (True, True)
    assert '"On" pays here' in speed.text


def test_a_leak_of_the_device_s_memory_counts() -> None:
    memory, speed = graphs.examine(FLAT, Way(1.0, 0.0, 64.0))
    assert memory.ok is False
    assert "64.00 of the device's" in memory.text
    assert '"On"' not in speed.text


def test_a_runtime_that_loses_every_launch_is_not_blamed_on_graphs() -> None:
    memory, _ = graphs.examine(Way(2.0, 40.0, 0.0), Way(1.0, 40.0, 0.0))
    assert memory.ok is False
    assert "Off" not in memory.cure
