from __future__ import annotations

import gc
import os
import stat
import tempfile
from pathlib import Path

import pytest
from engine_child import fake_config, run
from flatwake_service.engine import child, oom
from flatwake_service.engine.client import EngineClient


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(child, "_RUN", tmp_path / "missing")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def test_the_sockets_folder_is_this_users_alone(temporary: Path) -> None:
    folder = child.private_folder()
    assert folder.parent == temporary
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_a_temporary_folder_too_long_for_a_socket_is_passed_over(
    temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    long = temporary / ("x" * 90)
    long.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(long))
    folder = child.private_folder()
    try:
        assert len(os.fsencode(folder / "engine")) < 100
        assert list(long.iterdir()) == []
    finally:
        folder.rmdir()


def test_a_child_that_cannot_be_started_leaves_nothing(temporary: Path) -> None:
    async def scenario() -> None:
        with pytest.raises(FileNotFoundError):
            await EngineClient.start(fake_config(), command=["/no/such/program"])

    def descriptors() -> int:
        run(scenario())
        gc.collect()
        return len(os.listdir("/proc/self/fd"))

    assert descriptors() == descriptors()
    assert list(temporary.iterdir()) == []


@pytest.mark.parametrize(
    ("code", "out_of_memory", "reason", "message"),
    [
        (1, False, "EngineFailed", "the engine process exited with code 1; its log says why"),
        (-9, False, "EngineFailed", "the engine process was ended by SIGKILL"),
        (-9, True, "OutOfMemory", "the engine process was killed for want of memory"),
        (-6, True, "EngineFailed", "the engine process was ended by SIGABRT"),
        (-40, False, "EngineFailed", "the engine process was ended by signal 40"),
    ],
)
def test_an_exit_is_described(code: int, out_of_memory: bool, reason: str, message: str) -> None:
    failed = child.describe_exit(code, out_of_memory)
    assert failed.reason == reason
    assert failed.message.startswith(message)


def test_the_kernels_kills_are_read_from_either_cgroup(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    new, old = tmp_path / "memory.events", tmp_path / "memory.oom_control"
    monkeypatch.setattr(oom, "FILES", (new, old))
    assert oom.oom_kills() is None
    old.write_text("oom_kill_disable 0\nunder_oom 0\noom_kill 4\n")
    assert oom.oom_kills() == 4
    new.write_text("low 0\nhigh 3\nmax 9\noom 2\noom_kill 1\noom_group_kill 0\n")
    assert oom.oom_kills() == 1
