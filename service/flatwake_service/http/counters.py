"""The API process's own counters: plain numbers that the request path adds to."""

from __future__ import annotations

from typing import Literal, get_args

from flatwake_service.http.histogram import Histogram

Outcome = Literal["stop", "length", "cancelled", "error", "rejected", "timeout"]

FIRST_TOKEN_BOUNDS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 60.0)
INTER_TOKEN_BOUNDS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.03, 0.05, 0.1, 0.2, 0.5, 1.0, 5.0)
QUEUE_BOUNDS = (0.001, 0.01, 0.05, 0.1, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0)
REQUEST_BOUNDS = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 60.0, 120.0, 300.0, 600.0)


class Counters:
    """Since the start. Seconds."""

    def __init__(self) -> None:
        self.requests: dict[Outcome, int] = dict.fromkeys(get_args(Outcome), 0)
        self.first_token = Histogram(FIRST_TOKEN_BOUNDS)
        self.inter_token = Histogram(INTER_TOKEN_BOUNDS)
        self.queue = Histogram(QUEUE_BOUNDS)
        self.request = Histogram(REQUEST_BOUNDS)
