"""The run on the terminal: which wave plays, how fast, what the server holds."""

from __future__ import annotations

import time
from collections import Counter, deque

from rich.console import Console
from rich.live import Live
from rich.markup import escape
from rich.text import Text

from .answer import Json
from .checks import Check, State
from .figures import Figures, of
from .memory import Sampler
from .record import Record
from .verdict import quantity

_MARKS = {State.HOLDS: "[green]✓[/]", State.FAILS: "[red]✗[/]", State.NOT_SHOWN: "[yellow]?[/]"}


class Progress:
    """A line a wave; on a terminal one more line that lives."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live = Live(console=console, transient=True, refresh_per_second=4)
        self._tokens: deque[tuple[float, int]] = deque()
        self._wave = ""

    def __enter__(self) -> Progress:
        if self._console.is_terminal:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def watch(self, event: Json, record: Record, sampler: Sampler) -> None:
        kind = event["event"]
        if kind == "wave":
            self._wave = event["name"]
        if kind == "answer":
            self._tokens.append((time.monotonic(), len(event["stamps"])))
        if kind == "mark" and event["phase"] == "end":
            self._console.print(line(of(record.waves[event["wave"]])), soft_wrap=True)
        if self._console.is_terminal:
            self._live.update(self._now(record, sampler))

    def _now(self, record: Record, sampler: Sampler) -> Text:
        now = time.monotonic()
        while self._tokens and self._tokens[0][0] < now - 5:
            self._tokens.popleft()
        speed = sum(tokens for _, tokens in self._tokens) / 5
        held = ""
        if sampler.samples:
            values = sampler.samples[-1].values
            held = " · ".join(
                f"{process} {quantity(value, 'bytes')}"
                for (process, kind), value in sorted(values.items())
                if kind == "rss"
            )
        return Text(f"  ▸ {self._wave}: {record.ended} requests, {speed:.0f} tokens/s · {held}")


def line(figures: Figures) -> str:
    """One wave in one line."""
    first, gap = figures.first.percentile(50), figures.gap.percentile(99)
    parts = [f"{sum(figures.outcomes.values())} requests"]
    if figures.aggregate is not None:
        parts.append(f"{figures.aggregate:.0f} tokens/s")
    if first is not None:
        parts.append(f"first token {first * 1000:.0f} ms")
    if gap is not None:
        parts.append(f"p99 gap {gap * 1000:.1f} ms")
    if "join_ttft_ms" in figures.more:
        parts.append(f"others' largest gap {figures.more['others_largest_gap_ms']:.0f} ms")
    return f"  {figures.name:<24} " + " · ".join(parts)


def summary(console: Console, checks: list[Check], holds: bool, growing: list[str]) -> None:
    """What held, a line a promise; then what didn't, with its figures, where it is read."""
    held = Counter(each.about for each in checks if each.state is State.HOLDS)
    for about, times in held.items():
        console.print(f"{_MARKS[State.HOLDS]} {about}" + (f" ({times} waves)" if times > 1 else ""))
    for each in sorted(checks, key=lambda each: each.required):
        if each.state is not State.HOLDS:
            mark = _MARKS[each.state] if each.required else "[dim]·[/]"
            where = f", {each.wave}" if each.wave else ""
            text = escape(f"{each.about}{where}: {each.detail}")
            console.print(f"{mark} {each.state.value}: {text}", highlight=False, soft_wrap=True)
    if growing:
        console.print(f"[red]{' and '.join(growing)} grows.[/]")
    console.print("[green]Every promise holds.[/]" if holds else "[red]Not every promise holds.[/]")
