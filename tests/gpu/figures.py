"""The committed figures, docs/benchmarks/h200.json, from a session's results: nothing is typed in.

    python figures.py results.json ../../docs/benchmarks/h200.json --commit HASH

`results.json` is what `session.sh all` leaves in its folder. What it doesn't hold (the machine, the
fixture's positions, a part that found no time) stays as the figures' file has it; `sources` says of
which commit such a part is.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

SIZES = ("0.8B", "4B", "9B")
JOIN = ("own_prefill_ms", "decode_step_ms", "allowed_ms", "longest_gap_ms", "allowed_gap_ms")


def figures(results: dict[str, Any]) -> dict[str, Any]:
    """Under the names that docs/benchmarks.md uses; losses and shares are parts of one."""
    models, engine = results["models"]["models"], results["engine"]
    decode = {size: models[size]["decode"] for size in SIZES}
    graphs, without = decode["4B"]["tok_s"], _model(results["graphs-off"])["decode"]["tok_s"]
    return {
        "date": results["models"]["date"][:10],
        "read_bytes_per_second": round(results["models"]["read_tb_s"] * 1e12),
        "decode_bandwidth_share": {s: _rounded(decode[s]["share"], 3) for s in SIZES},
        "decode_tok_s": {s: _rounded(decode[s]["tok_s"], 1) for s in SIZES},
        "batch8_speedup": {
            s: round(decode[s]["tok_s"]["8"] / decode[s]["tok_s"]["1"], 2) for s in SIZES
        },
        "cublas_linear_ratio": {s: _rounded(models[s]["cublas_linear_ratio"], 3) for s in SIZES},
        "launches": {s: models[s]["launches"]["1"] for s in SIZES},
        "depth_loss_32k": {"4B": round(_model(results["deep"])["depth"]["depth_loss_32k"], 3)},
        "prefill_tok_s": {s: round(2048 / models[s]["prefill_seconds_2048"]) for s in SIZES},
        "prefill_ratio": {s: round(models[s]["prefill_ratio"], 3) for s in SIZES},
        "graph_speedup": {users: round(graphs[users] / without[users], 3) for users in without},
        "serving_loss": {s: _loss(results[f"layers-{s}"]) for s in ("4B", "9B")},
        "serving_loss_without_graphs": {"4B": _loss(results["layers-4B-off"])},
        "join_ttft_ms": round(engine["join"]["join_ttft_ms"], 1),
        "join": {name: round(engine["join"][name], 1) for name in JOIN},
        **{name: engine[name] for name in ("full_context", "replays", "requests")},
        **_reported(results),
    }


def _reported(results: dict[str, Any]) -> dict[str, Any]:
    """Of the last model that a session serves, if it came to that."""
    if "layers-0.8B" not in results:
        return {}
    return {"serving_loss_reported": {"0.8B": _loss(results["layers-0.8B"])}}


def _model(part: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = part["models"]["4B"]
    return found


def _rounded(values: dict[str, float], digits: int) -> dict[str, float]:
    return {users: round(value, digits) for users, value in values.items()}


def _loss(layers: dict[str, Any]) -> dict[str, float]:
    """From the runner at a fixed batch to sockets, by users."""
    return {users: round(c["value"] / 100, 3) for users, c in layers["serving_cost_pct"].items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("results", type=Path)
    parser.add_argument("figures", type=Path)
    parser.add_argument("--commit", required=True, help="of the sources that were measured")
    options = parser.parse_args()
    before = json.loads(options.figures.read_text())
    new = figures(json.loads(options.results.read_text()))
    found = before | new | {"commit": options.commit}
    sources = {name: of for name, of in before["sources"].items() if name not in new}
    if "serving_loss_reported" not in new:
        sources.setdefault("serving_loss_reported", {"commit": before["commit"]})
    found["sources"] = sources
    options.figures.write_text(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main()
