"""A run from start to end: the driving process, the sampler, and what both have said."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from tempfile import TemporaryFile
from typing import NoReturn

from .answer import Json
from .errors import LoadError
from .memory import Sample, Sampler
from .plan import Plan, Wave
from .record import Record

Watch = Callable[[Json, Record, Sampler], None]


@dataclass
class Session:
    """What was seen: events by wave, samples, and how long it took (seconds)."""

    record: Record
    samples: list[Sample]
    seconds: float
    sampling_errors: int
    load_average: tuple[float, float]  # of the machine, over a minute, before and at the end


def play(plan: Plan, processes: Mapping[str, int], watch: Watch) -> Session:
    """Plays a plan in a process of its own; `watch` is called at each event.

    An interrupt ends it early, with what was seen until then: hours of a run aren't thrown away.
    Raises LoadError when the driving process fails.
    """
    record = Record(plan)
    target = plan.targets[0]
    sampler = Sampler(
        target.url,
        api_key=target.api_key,
        processes=processes,
        metrics=target.metrics,
        interval=interval(plan.waves),
        requests=lambda: record.ended,
    )
    began, load = time.monotonic(), os.getloadavg()[0]
    sampler.start()
    try:
        _drive(plan, lambda event: _take(record, event, sampler, watch))
    except KeyboardInterrupt:
        pass  # the report says which waves are missing
    finally:
        sampler.stop()
    return Session(
        record=record,
        samples=sampler.samples,
        seconds=time.monotonic() - began,
        sampling_errors=sampler.errors,
        load_average=(load, os.getloadavg()[0]),
    )


def work(address: str, api_key: str | None) -> NoReturn:
    """Becomes a process that plays users for the run at host:port; it ends with the run."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit():
        raise LoadError(f"--worker {address}: the run's host and port, as in 10.0.0.7:5557")
    command = [sys.executable, "-m", f"{__package__}.worker", address]
    keys = {"OPENAI_API_KEY": api_key} if api_key else {}
    os.execve(sys.executable, command, os.environ | keys)  # noqa: S606 - nothing is left of this one


def interval(waves: tuple[Wave, ...]) -> float:
    """Seconds between samples: some 800 in an endurance run, 0.25 at the least, 30 at the most."""
    lengths = [wave.requests / wave.users * wave.pace for wave in waves if wave.kind == "endurance"]
    return min(max(min(lengths, default=800.0) / 800, 0.25), 30.0)


def _take(record: Record, event: Json, sampler: Sampler, watch: Watch) -> None:
    record.take(dict(event))
    watch(event, record, sampler)


def _drive(plan: Plan, take: Callable[[Json], None]) -> None:
    command = [sys.executable, "-m", f"{__package__}.drive"]
    with (
        TemporaryFile("w+") as said,
        subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=said, text=True
        ) as process,
    ):
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdin.write(json.dumps(plan.as_json()))
            process.stdin.close()
            for line in process.stdout:
                take(json.loads(line))
        except BaseException:  # an interrupt too: a driver that is left alone goes on driving
            process.terminate()
            raise
        if process.wait() != 0:
            said.seek(0)
            raise LoadError(f"the driving process failed:\n{said.read().strip()}")
