"""The metrics page has the whole table of the design, and true numbers."""

from __future__ import annotations

import os
from collections.abc import Mapping

import httpx
import pytest
from fake_engine import FakeEngine
from flatwake_service.engine.messages import Stats, StepHistogram
from flatwake_service.http.process import Process
from prometheus_client.parser import text_string_to_metric_families
from served import Served

TABLE = {
    "requests_total": "outcome",
    "requests_running": "",
    "requests_waiting": "",
    "requests_in_flight": "",
    "prompt_tokens_total": "",
    "generated_tokens_total": "",
    "reported_tokens_total": "",
    "discarded_tokens_total": "",
    "time_to_first_token_seconds_count": "",
    "inter_token_seconds_count": "",
    "queue_seconds_count": "",
    "request_seconds_count": "",
    "step_seconds_count": "phase",
    "step_rows_count": "phase",
    "step_bytes_total": "",
    "device_bandwidth_bytes": "",
    "kv_blocks": "state",
    "state_slots": "state",
    "preemptions_total": "",
    "graph_replays_total": "",
    "graph_captures_total": "",
    "memory_bytes": "process,kind",
    "open_files": "process",
    "threads": "process",
    "python_blocks": "process",
    "model_load_ratio": "",
    "engine_up": "",
    "build_info": "version,model,backend",
}


def scrape(served: Served) -> dict[tuple[str, Mapping[str, str]], float]:
    with served.client() as client:
        response = client.get("/metrics")
    assert response.headers["content-type"].startswith("text/plain; version=0.0.4")
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(response.text)
        for sample in family.samples
    }


def test_the_whole_table_is_there(served: Served) -> None:
    found = scrape(served)
    names = {name.removeprefix("flatwake_"): {k for k, _ in labels} for name, labels in found}
    for name, labels in TABLE.items():
        assert names.get(name) == set(filter(None, labels.split(","))), name
    for alias in ("num_requests_waiting", "num_requests_running", "kv_cache_usage_perc"):
        assert (f"vllm:{alias}", (("model_name", "fake"),)) in found


def test_requests_and_tokens_are_counted() -> None:
    stats = Stats(
        prompt_tokens=11,
        generated_tokens=7,
        reported_tokens=6,
        discarded_tokens=1,
        blocks_used=1,
        blocks_free=3,
        decode_seconds=StepHistogram((0, 2, 1), 0.004),
    )
    with Served(lambda: FakeEngine(stats=stats)) as served:
        for _ in range(3):
            assert served.chat("say hello.").status_code == 200
        assert served.chat("say hello.", max_tokens=2).status_code == 200
        found = scrape(served)
    assert found["flatwake_requests_total", (("outcome", "stop"),)] == 3
    assert found["flatwake_requests_total", (("outcome", "length"),)] == 1
    assert found["flatwake_time_to_first_token_seconds_count", ()] == 4
    assert found["flatwake_inter_token_seconds_count", ()] == 3 * 5 + 1
    assert found["flatwake_request_seconds_bucket", (("le", "+Inf"),)] == 4
    assert found["flatwake_generated_tokens_total", ()] == 7
    assert found["flatwake_step_seconds_bucket", (("le", "0.001"), ("phase", "decode"))] == 2
    assert found["flatwake_step_seconds_count", (("phase", "decode"),)] == 3
    assert found["vllm:kv_cache_usage_perc", (("model_name", "fake"),)] == 0.25
    assert found["flatwake_kv_blocks", (("state", "free"),)] == 3


def test_waiting_requests_show() -> None:
    with Served(lambda: FakeEngine(max_sequences=1), max_sequences=1) as served:
        served.call(served.engine.hold)
        with served.client() as client:
            body = {"messages": [{"role": "user", "content": "x"}]}
            with pytest.raises(httpx.ReadTimeout):
                client.post("/v1/chat/completions", json=body, timeout=0.3)
        served.wait(lambda: served.service.admission.in_flight == 0)
        found = scrape(served)
    assert found["flatwake_requests_waiting", ()] == 0
    assert found["flatwake_requests_total", (("outcome", "cancelled"),)] == 1


def test_a_process_is_measured() -> None:
    usage = Process(os.getpid()).usage()
    assert usage.rss_anon is not None
    assert usage.rss_anon > 1 << 20
    assert usage.pss is not None
    assert usage.open_files is not None
    assert usage.threads is not None
    gone = Process(2**22 + 1).usage()
    assert (gone.rss_anon, gone.open_files) == (None, None)
