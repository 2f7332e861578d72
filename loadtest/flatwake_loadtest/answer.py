"""One request as its client saw it."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from .arrivals import Wait

Json = dict[str, Any]  # a body as JSON gives it: only the fields that are read are known

# Tags of requests that no server can serve: to refuse them is right.
UNFIT = ("malformed", "oversized")


@dataclass
class Answer:
    """One request as its client saw it.

    `outcome` is the server's own finish reason ("stop", "length"), or "cancelled" (this client
    went away, as planned), "rejected" (429), "timeout" (503, or an error event that says so),
    "error" (any other status or error event), "broken" (the stream ended without [DONE]),
    "unreachable".

    `sent` is when its first byte was given to an open connection. `stamps` are the seconds from
    there to each event that held text, `late_first` and `late_last` how many of them the first and
    the last one had waited here for this client to read it (None where the kernel doesn't say; at
    most `doubt_first` more for the first, where it was read together with the next ones), `delays`
    the seconds that each took from the engine's stamp (where the server sends one), `tokens` how
    many those events are known to hold (exact with logprobs, else one an event), `usage_*` the
    server's own counts, None where it sent none.
    """

    wave: str = ""
    user: int = 0
    sent: float = 0.0
    seconds: float = 0.0
    outcome: str = "unreachable"
    status: int = 0
    stamps: list[float] = field(default_factory=list)
    delays: list[float] = field(default_factory=list)
    late_first: float | None = None
    late_last: float | None = None
    doubt_first: float = 0.0
    tokens: int = 0
    exact: bool = False
    usage_prompt: int | None = None
    usage_completion: int | None = None
    retry_after: str | None = None
    error: str | None = None
    text: str = ""
    tag: str = ""

    @property
    def first(self) -> float | None:
        """Seconds to the first event with text: the time to the first token."""
        return self.stamps[0] if self.stamps else None

    @property
    def gaps(self) -> list[float]:
        return [b - a for a, b in zip(self.stamps, self.stamps[1:], strict=False)]

    @property
    def produced(self) -> int:
        """Tokens generated: the server's count where it gave one."""
        return self.tokens if self.usage_completion is None else self.usage_completion

    @property
    def complete(self) -> bool:
        return self.outcome in ("stop", "length")

    def waited(self, wait: Wait | None, first: Wait | None) -> None:
        """The newest event with text had waited so long to be read, the first one so long."""
        if wait is None or first is None:
            return
        self.late_last = wait.least
        if len(self.stamps) == 1:
            self.late_first = wait.least
        elif len(self.stamps) == 2 and wait.read == first.read:
            # The kernel's stamp is the newest one's; the first came after the request at least.
            self.doubt_first = max(min(first.most, self.stamps[0]) - first.least, 0.0)

    def as_json(self) -> Json:
        event = asdict(self)
        for name in ("stamps", "delays"):
            event[name] = [round(seconds, 6) for seconds in event[name]]
        return event
