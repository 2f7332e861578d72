"""The report as one self-contained HTML file, for a desk, a phone and paper."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from html import escape
from importlib import resources
from typing import NamedTuple

import plotly.graph_objects as go
from plotly.offline import get_plotlyjs

from . import plots
from .answer import Json
from .verdict import quantity

# Draws each figure at the width it gets, again when that changes, and fits it to paper.
_SCRIPT = """
const draw = () => document.querySelectorAll('.plot').forEach(place => {
  const figure = JSON.parse(place.querySelector('script').textContent);
  Plotly.newPlot(place, figure.data, figure.layout, {displayModeBar: false, responsive: true});
});
const fit = width => document.querySelectorAll('.plot').forEach(place =>
  Plotly.relayout(place, {width: width, autosize: width === null}));
draw();
addEventListener('beforeprint', () => fit(680));
addEventListener('afterprint', () => fit(null));
"""
_MARKS = {"holds": "✓ holds", "fails": "✗ fails", "not shown": "? not shown"}
_CLASSES = {"holds": "holds", "fails": "fails", "not shown": "open"}
_FLAT = {"flat": "holds", "not flat": "fails", "not shown": "open"}


class Column(NamedTuple):
    head: str
    cell: Callable[[Json], str]
    kind: str = "n"


def render(report: Json) -> str:
    """The whole page; what the server said is escaped."""
    target = report["targets"][0]
    css = resources.files(__package__).joinpath("page.css").read_text()
    title = f"Load report: {target['model'] or target['url']}"
    parts = [
        f"<h1>{escape(title)}</h1>",
        f'<p class="soft">{escape(_origin(report, target))}</p>',
        _verdict(report),
        _tiles(report),
        _waves(report),
        _peers(report),
        _section("Throughput", _plot(plots.throughput(report))),
        _latencies(report),
        _memory(report),
        _shapes(report),
        _checks(report),
        _conditions(report),
    ]
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{css}</style></head><body>"
        + "\n".join(part for part in parts if part)
        + f"<script>{get_plotlyjs()}</script><script>{_SCRIPT}</script></body></html>\n"
    )


def _origin(report: Json, target: Json) -> str:
    device = (target["device"] or {}).get("name") or report["machine"]
    return f"{target['url']} · {device} · {report['date']} · {report['seconds'] / 60:.1f} min"


def _verdict(report: Json) -> str:
    failed = [each for each in report["checks"] if each["required"] and each["state"] != "holds"]
    required = [each for each in report["checks"] if each["required"]]
    if report["holds"]:
        head, kind = f"Every promise holds ({len(required)} of {len(required)})", "holds"
    else:
        head, kind = f"{len(failed)} of {len(required)} promises don't hold", "fails"
    lines = [f"{each['about']} ({each['wave']}): {each['detail']}" for each in failed[:5]]
    if report["growing"]:
        lines.insert(0, f"What grows: {', '.join(report['growing'])}.")
    elif report["flatness"] == "flat":
        lines.append("Memory is flat.")
    elif report["memory"]["verdicts"]:
        lines.append("Nothing is seen to grow; whether memory is flat takes a longer run.")
    body = "".join(f"<p>{escape(line)}</p>" for line in lines)
    return f'<div class="verdict {kind}"><strong>{escape(head)}</strong>{body}</div>'


def _tiles(report: Json) -> str:
    steady = [
        wave
        for wave in report["waves"]
        if wave["kind"] == "steady" and wave["target"] == "ours" and wave["tokens_per_second"]
    ]
    tiles = [(f"{wave['tokens_per_second']:.0f}", f"tokens/s, {wave['name']}") for wave in steady]
    for wave in steady[-1:]:
        first, gap = wave["time_to_first_token"]["p50_ms"], wave["inter_token"]["p99_ms"]
        if first is not None and gap is not None:
            tiles.append((f"{first:.0f} ms", f"median first token, {wave['name']}"))
            tiles.append((f"{gap:.1f} ms", f"p99 gap, {wave['name']}"))
    for each in report["memory"]["verdicts"]:
        if each["kind"] == "rss" and each["per_1000_requests"]:
            high = quantity(each["per_1000_requests"]["interval"][1], "bytes")
            tiles.append((f"≤ {high}", f"{each['process']} per 1,000 requests, {each['wave']}"))
    cells = "".join(
        f'<div class="tile"><b>{escape(value)}</b><span>{escape(name)}</span></div>'
        for value, name in tiles
    )
    return f'<div class="tiles">{cells}</div>'


def _ms(group: str, field: str) -> Callable[[Json], str]:
    def cell(wave: Json) -> str:
        value = wave[group][field]
        return "" if value is None else f"{value:,.1f}"

    return cell


def _speed(field: str) -> Callable[[Json], str]:
    return lambda wave: "" if wave[field] is None else f"{wave[field]:,.1f}"


def _outcomes(wave: Json) -> str:
    return ", ".join(f"{count} {name}" for name, count in sorted(wave["outcomes"].items()))


_WAVES = (
    Column("Wave", lambda wave: str(wave["name"]), "name"),
    Column("Requests", _outcomes, "t"),
    Column("tokens/s", _speed("tokens_per_second")),
    Column("tokens/s a user", _speed("tokens_per_second_per_user")),
    Column("First token p50, ms", _ms("time_to_first_token", "p50_ms")),
    Column("First token p99", _ms("time_to_first_token", "p99_ms")),
    Column("Gap mean, ms", _ms("inter_token", "mean_ms")),
    Column("Gap p99", _ms("inter_token", "p99_ms")),
    Column("Gap p99.9", _ms("inter_token", "p99.9_ms")),
)


def _waves(report: Json) -> str:
    return _section("Waves", _table(_WAVES, report["waves"]))


def _peers(report: Json) -> str:
    if not report["peers"]:
        return ""

    def speeds(field: str) -> Callable[[Json], str]:
        return lambda row: " and ".join(f"{value:.1f}" for value in row[field])

    columns = (
        Column("Peer", lambda row: str(row["peer"]), "t"),
        Column("Users", lambda row: str(row["users"])),
        Column("Ours, tokens/s", speeds("ours_tokens_per_second")),
        Column("Peer, tokens/s", speeds("peer_tokens_per_second")),
        Column("Ours ÷ peer", lambda row: f"{row['ratio']:.2f}"),
    )
    text = "<p>The same prompts, in turns: ours, peer, peer, ours.</p>"
    return _section("Beside a peer", text + _table(columns, report["peers"]))


def _latencies(report: Json) -> str:
    first = _plot(plots.latency(report, "first_curve", "time to first token"))
    gaps = _plot(plots.latency(report, "gap_curve", "gap between tokens"))
    return _section("Time to first token", first) + _section("Gaps between tokens", gaps)


def _memory(report: Json) -> str:
    columns = (
        Column("What", lambda each: f"{each['process']} {each['kind']}, {each['wave']}", "name"),
        Column("Verdict", lambda each: str(each["flatness"]), "mark"),
        Column("per 1,000 requests", lambda each: _interval(each, "per_1000_requests")),
        Column("per hour", lambda each: _interval(each, "per_hour")),
        Column("Bound", _bound),
        Column("Why", lambda each: str(each["reason"]), "wide"),
    )
    verdicts = sorted(report["memory"]["verdicts"], key=lambda each: each["gate"] == "report")
    if not report["memory"]["series"]:
        return _section("Memory", "<p>The server shows none, and its processes aren't here.</p>")
    body = "".join(
        f'<div class="pair"><p>{escape(name)}</p>{_plot(plot)}</div>'
        for name, plot in plots.memory(report)
    )
    if verdicts:
        text = "Slopes after warm-up, with 95 % intervals. Flat: the upper end is under the bound."
        body += f"<p>{text}</p>" + _table(columns, verdicts, lambda each: _FLAT[each["flatness"]])
    return _section("Memory", body)


def _bound(each: Json) -> str:
    limit = quantity(each["bound"]["limit"], each["unit"])
    return f"{limit}, reported" if each["gate"] == "report" else limit


def _interval(each: Json, field: str) -> str:
    slope = each[field]
    if slope is None:
        return ""
    low, high = (quantity(end, each["unit"]) for end in slope["interval"])
    return f"{quantity(slope['value'], each['unit'])} ({low} to {high})"


def _shapes(report: Json) -> str:
    """Rising, depth and join, each only if it was played."""
    body = ""
    for wave in report["waves"]:
        if wave["kind"] == "rising":
            body += _section(f"Aggregate speed, {wave['name']}", _plot(plots.rising(wave)))
    depths = [wave for wave in report["waves"] if wave["kind"] == "depth"]
    if depths:
        body += _section("Decode speed by depth", _plot(plots.depth(depths)))
    joins = [wave for wave in report["waves"] if "join_ttft_ms" in wave]
    if joins:
        columns = (
            Column("A user joins three", lambda wave: str(wave["name"]), "name"),
            Column("Prompt, tokens", lambda wave: str(wave["join_prompt_tokens"] or "")),
            Column("Its first token, ms", lambda wave: f"{wave['join_ttft_ms']:.1f}"),
            Column("Others' largest gap, ms", lambda wave: f"{wave['others_largest_gap_ms']:.1f}"),
            Column("Others' median gap, ms", lambda wave: f"{wave['others_median_gap_ms']:.1f}"),
        )
        body += _section("Joining", _table(columns, joins))
    return body


def _checks(report: Json) -> str:
    columns = (
        Column("State", lambda each: _MARKS[each["state"]], "mark"),
        Column("Promise", lambda each: str(each["about"]), "name"),
        Column("Wave", lambda each: str(each["wave"]), "t"),
        Column("", lambda each: "" if each["required"] else "reported", "t"),
        Column("Detail", lambda each: str(each["detail"]), "wide"),
    )
    ordered = sorted(report["checks"], key=lambda each: each["state"] == "holds")
    table = _table(columns, ordered, lambda each: _CLASSES[each["state"]])
    return _section(
        "Promises", f"<details open><summary>{len(ordered)} checks</summary>{table}</details>"
    )


def _conditions(report: Json) -> str:
    rows = {
        "Command": report["command"],
        "Machine": report["machine"],
        "Load average": " → ".join(f"{each:.1f}" for each in report["load_average"])
        + " while this ran; above the number of cores, speeds are the machine's, not the server's",
        "Commit": report["commit"] or "not a checkout",
        "Versions": ", ".join(f"{name} {version}" for name, version in report["versions"].items()),
        "Seed": report["seed"],
        "Targets": "; ".join(
            f"{each['name']}: {each['model']} at {each['url']}, context {each['context']}, "
            f"{each['slots']} sequences, backend {each['backend']}, version {each['version']}"
            for each in report["targets"]
        ),
    }
    cells = "".join(
        f"<tr><th>{name}</th><td>{escape(str(value))}</td></tr>" for name, value in rows.items()
    )
    return _section("Conditions", f'<div class="scroll"><table>{cells}</table></div>')


def _section(title: str, body: str) -> str:
    return f"<h2>{escape(title)}</h2>{body}"


def _plot(plot: go.Figure) -> str:
    data = json.dumps(json.loads(plot.to_json())).replace("</", "<\\/")
    height = plot.layout.height
    return (
        f'<div class="plot" style="min-height:{height}px">'
        f'<script type="application/json">{data}</script></div>'
    )


def _table(
    columns: Iterable[Column], rows: Iterable[Json], mark: Callable[[Json], str] | None = None
) -> str:
    """A table that becomes a list of cards on a phone."""
    columns = list(columns)
    head = "".join(f'<th class="{column.kind}">{escape(column.head)}</th>' for column in columns)
    body = []
    for row in rows:
        cells = []
        for column in columns:
            colour = f" {mark(row)}" if mark and column.kind == "mark" else ""
            label, text = escape(column.head, quote=True), escape(column.cell(row))
            cells.append(f'<td class="{column.kind}{colour}" data-label="{label}">{text}</td>')
        body.append(f"<tr>{''.join(cells)}</tr>")
    return (
        f'<div class="scroll"><table class="stack"><thead><tr>{head}</tr></thead>'
        f"<tbody>{''.join(body)}</tbody></table></div>"
    )
