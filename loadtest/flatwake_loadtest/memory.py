"""Samples what the server's processes hold, from its /metrics or from /proc.

A thread of the command's own process does it, away from the one that drives the load.
"""

from __future__ import annotations

import http.client
import os
import re
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from .metrics import Scrape
from .series import Series
from .stream import Client

PAGE = os.sysconf("SC_PAGE_SIZE")
_PSS_EVERY = 60.0  # reading smaps_rollup walks the page tables
_FIELD = re.compile(r"^(\w+):\s+(\d+) kB$", re.MULTILINE)

Key = tuple[str, str]  # process, kind
SEEN = " in /proc"
BYTES = ("rss", "pss", "device", "kv_touched")


@dataclass(frozen=True)
class Sample:
    """What was held at one moment (CLOCK_MONOTONIC), after so many requests."""

    at: float
    requests: float
    values: Mapping[Key, float]


def from_metrics(scrape: Scrape) -> dict[Key, float]:
    """The values that DESIGN's metrics hold; `rss` is what is resident plus what is swapped out."""
    values: dict[Key, float] = {}
    for labels, value in scrape.labelled("memory_bytes"):
        kind = "rss" if labels["kind"] in ("rss_anon", "swap") else labels["kind"]
        key = (labels["process"], kind)
        values[key] = values.get(key, 0.0) + value
    for name in ("open_files", "threads", "python_blocks"):
        for labels, value in scrape.labelled(name):
            values[labels["process"], name] = value
    for name in ("kv_blocks", "state_slots"):
        used = scrape.get(name, state="used")
        if used is not None:
            values["engine", name] = used
    return values


def from_proc(processes: Mapping[str, int], pss: bool = False) -> dict[Key, float]:
    """The same of local processes by their ids; a process that has ended is left out."""
    values: dict[Key, float] = {}
    for process, pid in processes.items():
        folder = Path("/proc") / str(pid)
        try:
            status = dict(_FIELD.findall((folder / "status").read_text()))
            values[process, "rss"] = 1024.0 * (int(status["RssAnon"]) + int(status["VmSwap"]))
            values[process, "open_files"] = float(len(list((folder / "fd").iterdir())))
            values[process, "threads"] = float(len(list((folder / "task").iterdir())))
            if pss:
                rollup = dict(_FIELD.findall((folder / "smaps_rollup").read_text()))
                values[process, "pss"] = 1024.0 * int(rollup["Pss"])
        except (FileNotFoundError, ProcessLookupError, PermissionError, KeyError):
            continue
    return values


class Sampler:
    """Samples every `interval` seconds between start and stop."""

    def __init__(
        self,
        url: str,
        *,
        api_key: str | None = None,
        processes: Mapping[str, int] | None = None,
        metrics: bool = True,
        interval: float = 1.0,
        requests: Callable[[], int] = lambda: 0,
    ) -> None:
        self.samples: list[Sample] = []
        self.errors = 0
        self._client = Client(url, api_key, timeout=10.0)
        self._processes = dict(processes or {})
        self._metrics = metrics
        self._interval = interval
        self._requests = requests
        self._pss_at = -_PSS_EVERY
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="memory", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopped.set()
        self._thread.join()
        self._client.close()

    def sample(self) -> None:
        """Takes one sample now."""
        now = time.monotonic()
        values: dict[Key, float] = {}
        requests = float(self._requests())
        if self._metrics:
            try:
                scrape = Scrape.parse(self._client.get("/metrics")[1].decode())
            except (OSError, http.client.HTTPException):
                self.errors += 1
                self._client.close()
            else:
                values = from_metrics(scrape)
                ended = scrape.total("requests_total")
                requests = requests if ended is None else ended
        pss = now - self._pss_at >= _PSS_EVERY
        self._pss_at = now if pss else self._pss_at
        local = from_proc(self._processes, pss)
        values.update({key: value for key, value in local.items() if key not in values})
        for process in self._processes:
            # Kept beside what /metrics says, so that the two can be compared.
            if (process, "rss") in local:
                values[process, f"rss{SEEN}"] = local[process, "rss"]
        if values:
            self.samples.append(Sample(now, requests, values))

    def _run(self) -> None:
        due = time.monotonic()
        while not self._stopped.is_set():
            self.sample()
            due = max(due + self._interval, time.monotonic())
            self._stopped.wait(due - time.monotonic())


def series(samples: list[Sample], begin: float, end: float) -> list[Series]:
    """One series a process and kind, of the samples from `begin` to `end`; seconds from `begin`."""
    chosen = [sample for sample in samples if begin <= sample.at <= end]
    keys = sorted({key for sample in chosen for key in sample.values})
    return [_one(chosen, key, begin) for key in keys]


def _one(samples: list[Sample], key: Key, begin: float) -> Series:
    process, kind = key
    points = [
        (sample.at - begin, sample.requests, sample.values[key])
        for sample in samples
        if key in sample.values
    ]
    seconds, requests, values = np.array(points, dtype=np.float64).T
    # A restarted server counts from zero again; what had ended before has still ended.
    requests = np.maximum.accumulate(requests)
    memory = kind.removesuffix(SEEN) in BYTES
    grain = float(PAGE) if memory else 1.0
    unit = "bytes" if memory else "count"
    return Series(process, kind, unit, seconds, requests, values, grain)
