"""The report's figures, each from the report's JSON alone."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import plotly.graph_objects as go

from .answer import Json

_COLOURS = ("#2f6fb2", "#d1732a", "#2e8b57", "#a83c6e", "#6b5bab", "#8a6d1f", "#3b8ea5", "#777777")
_BANDS = ("rgba(90,100,114,0.07)", "rgba(90,100,114,0.0)")


def figure(x: str, y: str, height: int = 320) -> go.Figure:
    plot = go.Figure()
    plot.update_layout(
        template="plotly_white",
        height=height,
        margin={"l": 56, "r": 12, "t": 12, "b": 44},
        font={"family": "system-ui, DejaVu Sans, sans-serif", "size": 12, "color": "#1b1f24"},
        legend={"orientation": "h", "y": -0.22, "x": 0, "font": {"size": 11}},
        hovermode="closest",
        colorway=_COLOURS,
        xaxis={"title": x, "zeroline": False, "automargin": True},
        yaxis={"title": y, "zeroline": False, "automargin": True},
    )
    return plot


def throughput(report: Json) -> go.Figure:
    """Tokens a second of everyone together, with a band a wave."""
    plot = figure("seconds into the run", "tokens/s")
    timeline = report["timeline"]
    for index, wave in enumerate(report["waves"]):
        end = wave["begin"] + wave["seconds"]
        plot.add_vrect(x0=wave["begin"], x1=end, fillcolor=_BANDS[index % 2], line_width=0)
    plot.add_scatter(
        x=timeline["seconds"],
        y=timeline["tokens_per_second"],
        mode="lines",
        line={"shape": "hv", "width": 1.5},
        hovertemplate="%{x:.0f} s: %{y:.0f} tokens/s<extra></extra>",
        showlegend=False,
    )
    plot.update_yaxes(rangemode="tozero")
    return plot


def latency(report: Json, curve: str, title: str) -> go.Figure:
    """How many of all are at most so long, a line for each steady wave."""
    plot = figure(f"{title}, ms", "share", 340)
    shown = [wave for wave in report["waves"] if wave["kind"] in ("steady", "endurance")]
    for index, wave in enumerate(shown):
        if not wave[curve]["ms"]:
            continue
        plot.add_scatter(
            x=wave[curve]["ms"],
            y=wave[curve]["share"],
            mode="lines",
            # A wave has the same colour in every plot, also where another has no curve.
            line={"shape": "hv", "width": 2, "color": _COLOURS[index % len(_COLOURS)]},
            name=wave["name"],
            hovertemplate="%{y:.1%} within %{x:.2f} ms<extra>" + wave["name"] + "</extra>",
        )
    plot.update_xaxes(type="log")
    plot.update_yaxes(tickformat=".0%", range=[0, 1.01])
    return plot


def memory(report: Json) -> Iterator[tuple[str, go.Figure]]:
    """For each process, what it holds over time, and the fitted slope where it was judged."""
    for series in report["memory"]["series"]:
        moves = len(set(series["values"])) > 1  # a line that never moves says nothing
        if series["kind"] not in ("rss", "device") or not moves:
            continue
        plot = figure("seconds into the run", "MB", 300)
        seconds, values = np.array(series["seconds"]), np.array(series["values"]) / 1e6
        plot.add_scatter(
            x=seconds,
            y=values,
            mode="lines",
            line={"width": 1.5},
            name="held",
            hovertemplate="%{x:.0f} s: %{y:.2f} MB<extra></extra>",
        )
        for window in report["memory"]["windows"]:
            _slope_line(plot, report, series, window, seconds, values)
        room = max(float(np.ptp(values)) * 0.15, 0.5)
        plot.update_yaxes(range=[float(values.min()) - room, float(values.max()) + room])
        yield f"{series['process']}: {_KINDS[series['kind']]}", plot


_KINDS = {"rss": "resident and swapped memory", "device": "device memory"}


def _slope_line(
    plot: go.Figure,
    report: Json,
    series: Json,
    window: Json,
    seconds: np.ndarray[tuple[int], np.dtype[np.float64]],
    values: np.ndarray[tuple[int], np.dtype[np.float64]],
) -> None:
    """The judged window's line, dotted, through the middle of its samples."""
    verdict = next(
        (
            each
            for each in report["memory"]["verdicts"]
            if (each["wave"], each["process"], each["kind"])
            == (window["wave"], series["process"], series["kind"])
        ),
        None,
    )
    begin, end = window["begin"], window["end"]
    inside = (seconds >= begin) & (seconds <= end)
    if verdict is None or verdict["per_hour"] is None or not inside.any():
        return
    slope = verdict["per_hour"]["value"] / 1e6 / 3600
    middle = float(np.median(values[inside] - slope * seconds[inside]))
    plot.add_vrect(x0=begin, x1=end, fillcolor="rgba(47,111,178,0.08)", line_width=0)
    plot.add_scatter(
        x=[begin, end],
        y=[middle + slope * begin, middle + slope * end],
        mode="lines",
        line={"dash": "dot", "width": 2.5, "color": "#c0392b"},
        name=f"slope, {window['wave']}: {verdict['flatness']}",
    )


def rising(wave: Json) -> go.Figure:
    """Aggregate speed by number of users, with its standard error."""
    plot = figure("users", "tokens/s")
    steps = wave["steps"]
    plot.add_scatter(
        x=[f"{index + 1}. {step['users']}" for index, step in enumerate(steps)]
        if len({step["users"] for step in steps}) < len(steps)
        else [step["users"] for step in steps],
        y=[step["tokens_per_second"] for step in steps],
        error_y={"type": "data", "array": [2 * step["standard_error"] for step in steps]},
        mode="lines+markers",
        showlegend=False,
    )
    plot.update_yaxes(rangemode="tozero")
    return plot


def depth(waves: list[Json]) -> go.Figure:
    """Decode speed of one stream by the depth of its context."""
    plot = figure("depth, tokens", "tokens/s")
    for wave in waves:
        plot.add_scatter(
            x=[window["depth"] for window in wave["windows"]],
            y=[window["tokens_per_second"] for window in wave["windows"]],
            mode="lines+markers",
            name=wave["name"],
        )
    plot.update_yaxes(rangemode="tozero")
    return plot
