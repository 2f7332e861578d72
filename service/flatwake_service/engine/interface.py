"""What the loop needs of whatever runs a batch: the runner, or a test's stand-in."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from flatwake_service.engine import sequence
from flatwake_service.engine.batch import Batch, Result
from flatwake_service.engine.messages import Device


class StepRunner(Protocol):
    """Runs batches on one device.

    `context` is what the pool holds for one sequence, `model_context` what the model was made for;
    `vocabulary` token ids have a row in the model; `model_bytes` are the weights in their files.
    `blocks` KV blocks beside block 0, and `slots` beside slot 0, may be given to sequences.
    `recurrent` says whether a slot holds state that must be zeroed when it is taken.
    `bandwidth_bytes` is the device's read rate a second, measured at start; `graph_*` count since
    start.
    """

    context: int
    vocabulary: int
    blocks: int
    slots: int
    recurrent: bool
    device: Device
    bandwidth_bytes: float
    model_bytes: int
    model_context: int
    graph_replays: int
    graph_captures: int

    def launch(self, batch: Batch) -> None:
        """Upload what changed, and start the step."""

    def read(self) -> Iterator[Result]:
        """The parts of the step launched last, each as soon as it is done."""

    def take(self, taken: sequence.Sequence) -> None:
        """A sequence got its slot: set its sampling, its penalties' counts, and zero its state.

        Called before `launch` for each of `batch.taken`. One that was preempted has generated
        tokens already, whose counts are part of what is set.
        """

    def kv_touched_bytes(self) -> int:
        """KV bytes that were ever written."""

    def device_bytes(self) -> int:
        """Device memory that the engine holds."""


def row_buckets(most: int) -> list[int]:
    """Numbers of decode rows that have a plan: 1, 2, 4, 8, then by 8; the last holds `most`."""
    buckets = [1, 2, 4]
    while buckets[-1] < most:
        buckets.append(buckets[-1] // 8 * 8 + 8)
    return [n for i, n in enumerate(buckets) if i == 0 or buckets[i - 1] < most]
