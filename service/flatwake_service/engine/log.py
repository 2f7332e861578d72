"""The engine process's log: the API process's format, with a name of its own."""

from __future__ import annotations

import logging
import sys
import time
from typing import Literal

import msgspec


def _utc(seconds: float | None) -> time.struct_time:
    return time.gmtime(seconds)


class _Formatter(logging.Formatter):
    converter = staticmethod(_utc)
    default_time_format = "%Y-%m-%dT%H:%M:%S"
    default_msec_format = "%s.%03dZ"

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s engine: %(message)s")


class _JsonFormatter(_Formatter):
    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": self.formatTime(record),
            "level": record.levelname.lower(),
            "event": record.getMessage(),
            "process": "engine",
        }
        if record.exc_info:
            line["trace"] = self.formatException(record.exc_info)
        return msgspec.json.encode(line).decode()


def configure_log(form: Literal["text", "json"]) -> None:
    """One line an event on stderr, warnings of libraries included."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_JsonFormatter() if form == "json" else _Formatter())
    logging.basicConfig(level=logging.WARNING, handlers=[handler], force=True)
    logging.getLogger("flatwake").setLevel(logging.INFO)
