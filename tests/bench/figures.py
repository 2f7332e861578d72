"""From single measurements to the committed figures and their table."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

GOALS = {
    "Q4_1": {"decode": {"1": 2.0, "4": 4.0, "8": 4.0}, "prefill": 2.0},
    "Q4_0": {"decode": {"1": 2.0, "4": 4.0, "8": 2.5}, "prefill": 1.2},
}
"""Our speed over the peer's, by users."""
BANDWIDTH_GOAL = 0.75
STARTUP_GOAL, BESIDES_GOAL = 2.0, 150.0


@dataclass
class Side:
    """One server's measurements, a round after another: by users, by prompt length; and once."""

    decode: dict[int, list[float]] = field(default_factory=dict)
    first: dict[int, list[float]] = field(default_factory=dict)
    startup: list[float] = field(default_factory=list)
    peak_bytes: int = 0
    besides_bytes: int | None = None


@dataclass(frozen=True)
class File:
    name: str
    ours: Side
    peer: Side


def document(files: Sequence[File]) -> dict[str, Any]:
    """The figures by file; ratios are medians of the rounds' ratios, ours over theirs in speed."""
    found: dict[str, Any] = {}

    def put(key: str, file: File, value: Any) -> None:
        found.setdefault(key, {})[file.name] = value

    for file in files:
        ours, peer = file.ours, file.peer
        users = [u for u in ours.decode if u in peer.decode]
        put("decode_ratio", file, {str(u): _ratio(ours.decode[u], peer.decode[u]) for u in users})
        put("decode_tok_s", file, {str(u): _median(ours.decode[u]) for u in users})
        put("peer_decode_tok_s", file, {str(u): _median(peer.decode[u]) for u in users})
        put("user_tok_s", file, {str(u): _median(ours.decode[u], u) for u in users})
        put("peer_user_tok_s", file, {str(u): _median(peer.decode[u], u) for u in users})
        put("by_users", file, {str(u): _median(v) for u, v in sorted(ours.decode.items())})
        put(
            "prefill_ratio",
            file,
            {str(n): _ratio(peer.first[n], ours.first[n]) for n in ours.first},
        )
        put("ttft_ms", file, {str(n): _median(v, 1e-3) for n, v in ours.first.items()})
        put("peer_ttft_ms", file, {str(n): _median(v, 1e-3) for n, v in peer.first.items()})
        put("startup_s", file, _median(ours.startup))
        put("peer_startup_s", file, _median(peer.startup))
        put("peak_rss_mb", file, round(ours.peak_bytes / 1e6, 1))
        put("peer_peak_rss_mb", file, round(peer.peak_bytes / 1e6, 1))
        if ours.besides_bytes is not None:
            put("besides_mb", file, round(ours.besides_bytes / 1e6, 1))
    return found


def table(found: dict[str, Any]) -> list[str]:
    """Markdown: a line a figure, ours and the peer's side by side, goals beside their ratios."""
    lines = ["| file | figure | ours | llama-server | ratio | goal |", "|---|---|---|---|---|---|"]
    for name, ratios in found["decode_ratio"].items():
        goals = GOALS.get(name, {"decode": {}, "prefill": None})
        for users, ratio in ratios.items():
            ours, peer = (found[f"{k}decode_tok_s"][name][users] for k in ("", "peer_"))
            what = f"decode, {users} user{'s' * (users != '1')}, tok/s"
            lines.append(_line(name, what, ours, peer, ratio, goals["decode"].get(users)))
        for length, ratio in found["prefill_ratio"][name].items():
            ours, peer = (found[f"{k}ttft_ms"][name][length] for k in ("", "peer_"))
            what = f"first token of {length}, ms"
            lines.append(_line(name, what, ours, peer, ratio, goals["prefill"]))
        startup, peer = found["startup_s"][name], found["peer_startup_s"][name]
        met = startup <= STARTUP_GOAL
        lines.append(_cells(name, "exec to first token, s", startup, peer, "", STARTUP_GOAL, met))
        peak, peer = found["peak_rss_mb"][name], found["peer_peak_rss_mb"][name]
        lines.append(_cells(name, "peak, MB", peak, peer, "", None, True))
        if name in found.get("besides_mb", {}):
            besides = found["besides_mb"][name]
            met = besides <= BESIDES_GOAL
            what = "beside weights and KV, MB"
            lines.append(_cells(name, what, besides, None, "", BESIDES_GOAL, met))
    for name, share in found.get("bandwidth_share", {}).items():
        met = share["value"] >= BANDWIDTH_GOAL
        what, shown = "share of the read rate", f"{share['value']:.2f}"
        lines.append(_cells(name, what, None, None, shown, BANDWIDTH_GOAL, met))
    return lines


def by_users_table(found: dict[str, Any]) -> list[str]:
    counts = list(next(iter(found["by_users"].values())))
    lines = [f"| file | {' | '.join(counts)} |", "|---" * (len(counts) + 1) + "|"]
    for name, speeds in found["by_users"].items():
        lines.append(f"| {name} | {' | '.join(f'{speed:.0f}' for speed in speeds.values())} |")
    return lines


def _line(
    name: str, what: str, ours: float, peer: float, ratio: float | None, goal: float | None
) -> str:
    shown = "" if ratio is None else f"{ratio:.2f}"
    met = goal is None or (ratio is not None and ratio >= goal)
    return _cells(name, what, ours, peer, shown, goal, met)


def _cells(
    name: str,
    what: str,
    ours: float | None,
    peer: float | None,
    ratio: str,
    goal: float | None,
    met: bool,
) -> str:
    figures = ["" if value is None else f"{value:,.4g}" for value in (ours, peer)]
    wanted = "" if goal is None else f"{goal:g}{'' if met else ', missed'}"
    return f"| {name} | {what} | {figures[0]} | {figures[1]} | {ratio} | {wanted} |"


def _median(values: Sequence[float], unit: float = 1.0) -> float:
    return round(statistics.median(values) / unit, 2)


def _ratio(above: Sequence[float], below: Sequence[float]) -> float:
    return round(statistics.median(a / b for a, b in zip(above, below, strict=True)), 3)
