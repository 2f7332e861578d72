"""The engine process and its parent: neither outlives the other for long."""

from __future__ import annotations

import os
import select
import subprocess
import sys
from pathlib import Path

import pytest
from engine_child import COMMAND, fake_config
from flatwake_kernels.backend import BackendUnavailable, KernelError, MemoryShort, Unsupported
from flatwake_service.engine import config as configuration
from flatwake_service.engine.worker import failure_reason
from flatwake_service.errors import CheckpointError, FlatwakeError, UnsupportedModel

SUPPORT = Path(__file__).parents[1] / "support"
PARENT = """
import asyncio, sys, uvloop
sys.path.insert(0, sys.argv[1])
from engine_child import eventually, fake_engine
from fake_worker import Behaviour

async def main():
    async with fake_engine(behaviour=Behaviour(start=sys.argv[2])) as client:
        await eventually(lambda: client.progress if sys.argv[2] else client.started)
        print(client.pid, flush=True)
        await asyncio.Event().wait()

uvloop.run(main())
"""


@pytest.mark.parametrize("start", ["", "stall"])
def test_a_parent_that_is_killed_takes_the_engine_along(start: str) -> None:
    """Idle, and in the middle of its load."""
    command = [sys.executable, "-c", PARENT, str(SUPPORT), start]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        engine = os.pidfd_open(int(parent.stdout.readline()))
        try:
            assert not select.select([engine], [], [], 0)[0]
            parent.kill()
            assert select.select([engine], [], [], 5)[0], "the engine outlived its parent"
        finally:
            os.close(engine)


def test_an_engine_whose_parent_is_gone_before_it_connects_ends_quietly(tmp_path: Path) -> None:
    config = configuration.encode(fake_config(socket=str(tmp_path / "nobody")))
    done = subprocess.run([*COMMAND, config], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0
    assert "no API process" in done.stderr
    assert "Traceback" not in done.stderr


class Newer(FlatwakeError):
    reason = "OfAnotherVersion"


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (CheckpointError("cut short"), "ModelUnreadable"),
        (UnsupportedModel("an unknown architecture"), "ModelUnsupported"),
        (Newer("a reason outside the closed list"), "EngineFailed"),
        (FileNotFoundError(2, "No such file"), "ModelMissing"),
        (MemoryError(), "OutOfMemory"),
        (BackendUnavailable("no library"), "LibraryUnusable"),
        (KernelError("device fault"), "DeviceFault"),
        (MemoryShort("cannot allocate"), "OutOfMemory"),
        (Unsupported("weights of format 99 are not known here"), "ModelUnsupported"),
        (AssertionError("our bug"), "EngineFailed"),
    ],
)
def test_a_failures_reason_is_of_the_closed_list(error: Exception, reason: str) -> None:
    assert failure_reason(error) == reason
