"""The engine process over the fake device: `python fake_worker.py CONFIGURATION`.

FLATWAKE_FAKE, JSON, says how it behaves (see `Behaviour`).
"""

from __future__ import annotations

import os
import signal
import sys
import time
from typing import Literal

import msgspec
from fake_runner import FakeRunner
from flatwake_service.engine import worker
from flatwake_service.engine.batch import Batch
from flatwake_service.engine.config import EngineConfig
from flatwake_service.errors import CheckpointError


class Behaviour(msgspec.Struct, forbid_unknown_fields=True):
    """`part_seconds` is how long each part of a step takes. `fault` happens in step `fault_step`;
    `start` while it loads."""

    context: int = 512
    blocks: int = 256
    part_seconds: float = 0.0
    fault: Literal["", "raise", "exit", "abort", "hang"] = ""
    fault_step: int = 0
    start: Literal["", "raise", "refuse", "exit", "stall"] = ""


def open_fake(config: EngineConfig, progress: worker.Progress, heartbeat: int) -> FakeRunner:
    behaviour = msgspec.json.decode(os.environ.get("FLATWAKE_FAKE", "{}"), type=Behaviour)
    progress("loading", 0, 100)
    match behaviour.start:
        case "raise":
            raise ZeroDivisionError("a bug in the loader")
        case "refuse":
            raise CheckpointError("model.gguf is cut short", cure="fetch it again")
        case "exit":
            os._exit(3)
        case "stall":
            signal.pause()
    progress("loading", 100, 100)
    progress("warming", 3, 3)

    def pace(batch: Batch) -> None:
        if behaviour.part_seconds:
            time.sleep(behaviour.part_seconds)
        if behaviour.fault and batch.step >= behaviour.fault_step:
            _misbehave(behaviour.fault)

    return FakeRunner(
        context=behaviour.context,
        blocks=behaviour.blocks,
        slots=config.max_sequences,
        pace=pace,
    )


def _misbehave(fault: str) -> None:
    match fault:
        case "raise":
            raise ZeroDivisionError("a bug in a step")
        case "exit":
            os._exit(7)
        case "abort":
            os.kill(os.getpid(), signal.SIGABRT)
        case "hang":
            signal.pause()


if __name__ == "__main__":
    sys.exit(worker.main(open_runner=open_fake))
