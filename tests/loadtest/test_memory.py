"""Samples from /metrics and /proc say the same and become series."""

from __future__ import annotations

import os
import time

import pytest
from fake_servers import Start
from flatwake_loadtest.memory import Sample, Sampler, from_metrics, from_proc, series
from flatwake_loadtest.metrics import Scrape
from flatwake_loadtest.prompts import fixed
from flatwake_loadtest.stream import Client


def test_resident_is_what_is_in_memory_and_what_is_swapped_out() -> None:
    values = from_metrics(
        Scrape.parse(
            'flatwake_memory_bytes{process="engine",kind="rss_anon"} 100\n'
            'flatwake_memory_bytes{process="engine",kind="swap"} 20\n'
            'flatwake_memory_bytes{process="engine",kind="device"} 7\n'
            'flatwake_open_files{process="api"} 9\n'
            'flatwake_kv_blocks{state="used"} 3\nflatwake_kv_blocks{state="free"} 5\n'
        )
    )
    assert values == {
        ("engine", "rss"): 120,
        ("engine", "device"): 7,
        ("api", "open_files"): 9,
        ("engine", "kv_blocks"): 3,
    }


def test_proc_knows_this_process() -> None:
    values = from_proc({"api": os.getpid(), "gone": 2**22 + 1}, pss=True)
    assert values["api", "rss"] > 5e6
    assert values["api", "pss"] > 5e6
    assert values["api", "open_files"] > 2
    assert values["api", "threads"] >= 1
    assert all(process == "api" for process, _ in values)


def test_a_sampler_reads_metrics_and_counts_requests(start: Start) -> None:
    url = start("--process", "engine")
    sampler = Sampler(url, interval=0.02)
    sampler.start()
    with Client(url) as client:
        client.chat(fixed(16, 2, 1).body(None))
        deadline = time.monotonic() + 10
        while not sampler.samples or sampler.samples[-1].requests < 1:
            assert time.monotonic() < deadline
            client.get("/status")
    sampler.stop()
    assert sampler.errors == 0
    (engine,) = [
        each
        for each in series(sampler.samples, 0.0, float("inf"))
        if (each.process, each.kind) == ("engine", "rss")
    ]
    assert engine.values.min() > 1e6
    assert engine.requests[-1] == 1
    assert engine.grain == os.sysconf("SC_PAGE_SIZE")


def test_a_server_that_goes_away_is_counted_not_fatal() -> None:
    sampler = Sampler("http://127.0.0.1:9", interval=0.01)
    sampler.sample()
    assert sampler.errors == 1
    assert not sampler.samples


def test_series_are_cut_and_never_run_backwards() -> None:
    samples = [
        Sample(float(at), requests, {("api", "rss"): 100.0 + at})
        for at, requests in enumerate([0, 5, 9, 2, 4])
    ]
    (found,) = series(samples, 1.0, 4.0)
    assert found.seconds.tolist() == [0, 1, 2, 3]
    assert found.requests.tolist() == [5, 9, 9, 9]
    assert found.values[0] == pytest.approx(101)
