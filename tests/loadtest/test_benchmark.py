"""The committed figures come from a report, by run and process, and keep where they are from."""

from __future__ import annotations

from flatwake_loadtest.answer import Json
from flatwake_loadtest.benchmark import figures, layers, update


def report(requests: int, **more: object) -> Json:
    slope = {"value": 1500.0, "interval": [-500.0, 4000.0]}
    verdict = {"wave": "endurance", "kind": "rss", "flatness": "flat", "per_1000_requests": slope}
    return {
        "date": "2026-01-01",
        "commit": "abc",
        "machine": "a machine, 2 cores, 8 GiB",
        "versions": {},
        "command": "flatwake load",
        "load_average": [0.1, 2.0],
        "memory": {"verdicts": [{**verdict, "process": p} for p in ("api", "engine")]},
        "waves": [{"name": "endurance", "outcomes": {"length": requests}}],
        "peers": [],
        **more,
    }


def test_slopes_are_in_kilobytes_by_process_and_run() -> None:
    found = figures(report(5000))
    estimate = found["slope_kb_per_1000"]["engine"]["endurance"]
    assert (estimate["value"], estimate["interval"]) == (1.5, [-0.5, 4.0])
    assert found["requests"] == {"endurance": 5000}


def test_a_short_run_is_not_sold_as_a_long_one() -> None:
    found = figures(report(400))
    assert "slope_kb_per_1000" not in found
    assert set(found["slope_short"]) == {"api", "engine"}


def test_figures_of_other_runs_stay_with_their_source() -> None:
    rates = {"ours_tokens_per_second": [5.0, 5.0], "peer_tokens_per_second": [4.0, 4.0]}
    none = {**rates, "peer_tokens_per_second": [0.0, 4.0]}  # too short a turn: no figure
    peers = [{"users": 8, "ratio": 1.25, **rates}, {"users": 32, "ratio": 2.5, **none}]
    first = update({}, report(5000))
    second = update(first, report(400, date="2026-02-02", peers=peers))
    assert second["slope_kb_per_1000"] == first["slope_kb_per_1000"]
    assert second["peer_ratio"] == {"8": 1.25}
    assert second["sources"]["slope_kb_per_1000"]["date"] == "2026-01-01"
    assert second["sources"]["peer_ratio"]["date"] == "2026-02-02"
    assert second["date"] == "2026-02-02"


def test_speeds_of_a_busy_machine_have_a_key_of_their_own() -> None:
    wave = {"name": "join", "outcomes": {}, "join_prompt_tokens": 32, "join_ttft_ms": 20.04}
    more = {"waves": [*report(5000)["waves"], wave]}
    assert figures(report(5000, **more))["join_ttft_ms"] == {"32": 20.0}
    busy = figures(report(5000, load_average=[2.5, 3.0], **more))
    assert busy["join_ttft_ms_busy"] == {"32": 20.0}
    assert "join_ttft_ms" not in busy


def test_what_the_layers_cost_comes_from_the_bench_command() -> None:
    cost = {"8": {"value": 1.0, "interval": [0.5, 2.0]}}
    bench = {
        "date": "2026-03-03",
        "commit": "abc",
        "machine": "a machine",
        "versions": {},
        "command": "flatwake bench layers m.gguf --apart",
        "layer_cost_pct": cost,
        "C_processor_us_per_token": {"8": 60.0},
    }
    found = update(update({}, report(5000)), bench)
    assert found["layer_cost_pct"] == cost
    assert found["sources"]["layer_cost_pct"]["date"] == "2026-03-03"
    assert found["requests"] == {"endurance": 5000}
    stamped = bench | {"token_delay_ms": {"8": {"p50": 0.7}}}
    assert set(layers(stamped)) == {"token_delay_ms"}
    emitted = bench | {"command": "flatwake bench layers m.gguf --stand-in 100"}
    assert set(layers(emitted)) == {"layer_cost_pct_stand_in", "processor_us_stand_in"}
