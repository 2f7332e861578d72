"""Logs: one line an event on stderr, as text or JSON. Never prompts, answers or keys."""

from __future__ import annotations

import sys
import time
from typing import Literal, TextIO

import msgspec

Level = Literal["info", "warning", "error"]
Value = str | int | float | bool | None


class Log:
    """`log("event", name=value, …)`: an event is a few words, always the same for its kind."""

    def __init__(self, format: Literal["text", "json"] = "text", out: TextIO | None = None) -> None:  # noqa: A002
        self._json = format == "json"
        self._out = out

    def __call__(self, event: str, *, level: Level = "info", **fields: Value) -> None:
        out = self._out or sys.stderr
        now = time.time()
        stamp = (
            time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(now)) + f".{int(now % 1 * 1000):03d}Z"
        )
        given = {name: value for name, value in fields.items() if value is not None}
        if self._json:
            line = msgspec.json.encode({"time": stamp, "level": level, "event": event, **given})
            out.write(line.decode() + "\n")
        else:
            words = [f"{name}={_plain(value)}" for name, value in given.items()]
            out.write(" ".join([stamp, level.upper(), event, *words]) + "\n")
        out.flush()


def _plain(value: Value) -> str:
    """A value that can't break the line, or be taken for two."""
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, bool):
        return str(value).lower()
    text = str(value)
    if text.isascii() and text.isprintable() and text and not set(text) & set(' "='):
        return text
    return msgspec.json.encode(text.encode("utf-8", "replace").decode()).decode()
