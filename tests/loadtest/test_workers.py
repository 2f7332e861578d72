"""Users in workers: the same run, the same promises, from several processes."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from fake_servers import Start, free_port
from test_run import failed, load


@contextmanager
def workers(count: int) -> Iterator[tuple[str, list[subprocess.Popen[bytes]]]]:
    """Where they will join, and the workers, which end with the run or the block."""
    address = f"127.0.0.1:{free_port()}"
    command = [sys.executable, "-m", "flatwake_loadtest.cli", "--worker", address]
    started = [subprocess.Popen(command) for _ in range(count)]
    try:
        yield address, started
    finally:
        for each in started:
            each.terminate()
            each.wait()


def test_two_workers_play_every_wave_of_the_short_set(start: Start, tmp_path: Path) -> None:
    url = start("--rate", "150", "--queue", "8")
    with workers(2) as (address, started):
        words = ["--short", "--seconds", "1", "--minutes", "0.2", "--workers", "2"]
        code, report, _ = load(url, *words, "--bind", address, out=tmp_path)
        assert code == 0, failed(report)
        # The run's end is theirs.
        assert [each.wait(timeout=30) for each in started] == [0, 0]
    waves = {wave["name"]: wave for wave in report["waves"]}
    # Each worker's clock is told in the run's: its tokens come inside the steady part.
    assert waves["8 users"]["tokens_per_second"] > waves["1 user"]["tokens_per_second"] > 0
    assert waves["burst beyond the queue"]["outcomes"]["length"] == 88
    assert waves["rising 1 to 8"]["steps"][-1]["users"] == 8


def test_a_worker_that_dies_ends_the_run_with_its_name(start: Start, tmp_path: Path) -> None:
    with workers(1) as (address, (only,)):
        words = [start(), "--short", "--waves", "steady,endurance", "--users", "1"]
        words += ["--minutes", "60", "--workers", "1", "--bind", address, "--out", str(tmp_path)]
        command = [sys.executable, "-m", "flatwake_loadtest.cli", *words]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as run:
            assert run.stdout is not None
            for line in run.stdout:
                if line.strip().startswith("1 user"):  # it plays
                    break
            only.kill()
            said = run.stdout.read()
    assert run.returncode == 2
    assert re.search(r"worker \S+ is gone", said)


@pytest.mark.parametrize(
    ("words", "cure"),
    [
        (["--worker", "nowhere"], "host and port"),
        (["{url}", "--workers", "1", "--bind", "here"], "an address with a port"),
    ],
)
def test_an_address_without_a_port_is_refused(
    words: list[str], cure: str, steady_server: str, tmp_path: Path
) -> None:
    code, _, said = load(*[word.format(url=steady_server) for word in words], out=tmp_path)
    assert code == 2
    assert cure in " ".join(said.split())
