"""The committed figures, docs/benchmarks/load.json, from a run's report: nothing is typed in.

    python -m flatwake_loadtest.benchmark build/load/report.json docs/benchmarks/load.json

The first may also be what `flatwake bench layers --output` wrote. Figures of earlier reports stay
where the new one has none, each with its own date and command. Speeds of a machine that was busy
with something else (its load before the run was above its cores) have a key of their own; memory
doesn't depend on that, and ratios taken in turns do little.
"""

from __future__ import annotations

import json
import re
import shlex
import sys
from pathlib import Path

from .answer import Json
from .compare import load
from .errors import LoadError

_LONG = 5000  # requests from which a slope counts as measured


def figures(report: Json) -> Json:
    """What the report says, under the names that the docs use; kB are 1,000 bytes."""
    out: Json = {}
    for verdict in report["memory"]["verdicts"]:
        slope = verdict["per_1000_requests"]
        if verdict["kind"] != "rss" or slope is None:
            continue
        wave = next(each for each in report["waves"] if each["name"] == verdict["wave"])
        requests = sum(wave["outcomes"].values())
        group = out.setdefault("slope_kb_per_1000" if requests >= _LONG else "slope_short", {})
        low, high = slope["interval"]
        estimate = {
            "value": round(slope["value"] / 1000, 1),
            "interval": [round(low / 1000, 1), round(high / 1000, 1)],
            "verdict": verdict["flatness"],
        }
        group.setdefault(verdict["process"], {})[verdict["wave"]] = estimate
        out.setdefault("requests", {})[verdict["wave"]] = requests
    join = "join_ttft_ms_busy" if _busy(report) else "join_ttft_ms"
    for wave in report["waves"]:
        if "join_ttft_ms" in wave:
            prompt = str(wave["join_prompt_tokens"])
            out.setdefault(join, {})[prompt] = round(wave["join_ttft_ms"], 1)
    for peer in report["peers"]:
        if not all(peer["ours_tokens_per_second"] + peer["peer_tokens_per_second"]):
            continue  # a turn too short for a single token says nothing of the speed
        out.setdefault("peer_ratio", {})[str(peer["users"])] = round(peer["ratio"], 3)
    return out


def layers(bench: Json) -> Json:
    """What `flatwake bench layers` measured; a stand-in's has a key of its own."""
    emitted = " --stand-in" in bench["command"]
    names = {"layer_cost_pct": "layer_cost_pct", "C_processor_us_per_token": "processor_us"}
    if "token_delay_ms" in bench:
        # Stamps cost a little, so that such a run says nothing about the layers' cost.
        names = {"token_delay_ms": "token_delay_ms"}
    return {f"{key}_stand_in" if emitted else key: bench[name] for name, key in names.items()}


def _busy(report: Json) -> bool:
    cores = re.search(r"(\d+) cores", report["machine"])
    return cores is not None and report["load_average"][0] > int(cores.group(1))


def update(old: Json, report: Json) -> Json:
    """The old file with this report's figures; `sources` says which run each group is from."""
    found = layers(report) if "layer_cost_pct" in report else figures(report)
    names = ("date", "commit", "machine", "command", "load_average")
    source = {name: report[name] for name in names if name in report}
    source["command"] = _plain(source["command"])
    sources = {**old.get("sources", {}), **dict.fromkeys(found, source)}
    top = {name: report[name] for name in ("date", "commit", "machine", "versions")}
    top["command"] = source["command"]
    kept = {name: value for name, value in old.items() if name not in top and name != "sources"}
    return {**top, **kept, **found, "sources": sources}


def _plain(command: str) -> str:
    """Without the folders of one machine."""
    words = shlex.split(command)
    return shlex.join([Path(word).name if word.startswith("/") else word for word in words])


def main() -> int:
    if len(sys.argv) != 3:
        sys.stderr.write(f"{__doc__}\n")
        return 2
    report, target = (Path(word) for word in sys.argv[1:])
    try:
        found = json.loads(report.read_text())
        if "layer_cost_pct" not in found:
            found = load(report)
    except (OSError, ValueError, LoadError) as error:
        sys.stderr.write(f"error: {error}\n")
        return 2
    old = json.loads(target.read_text()) if target.exists() else {}
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(json.dumps(update(old, found), indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
