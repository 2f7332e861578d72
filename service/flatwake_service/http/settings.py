"""What the HTTP layer was told by `flatwake serve`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from flatwake_service.manifest import defaults, seconds, whole_bytes


@dataclass(frozen=True)
class Settings:
    """Seconds, bytes and tokens.

    `context_length` None: the model's own. `host` None: all addresses of the machine. `port` 0
    takes a free one. `ping` 0 sends no keep-alive comments. `propagation`: how long a server that
    got SIGTERM still takes requests.
    """

    served_name: str
    source: str
    revision: str | None = None
    digest: str | None = None
    aliases: tuple[str, ...] = ()
    host: str | None = None
    port: int = defaults.SERVE_PORT
    context_length: int | None = None
    max_sequences: int = defaults.MAX_SEQUENCES
    queue: int = defaults.QUEUE
    queue_timeout: float = seconds(defaults.QUEUE_TIMEOUT)
    request_timeout: float = seconds(defaults.REQUEST_TIMEOUT)
    drain_timeout: float = seconds(defaults.REQUEST_TIMEOUT)
    propagation: float = defaults.PROPAGATION_SECONDS
    body_bytes: int = whole_bytes(defaults.BODY_BYTES)
    api_keys_dir: Path | None = None
    cors_origins: tuple[str, ...] = ()
    chat_template: Path | None = None
    log_format: Literal["text", "json"] = "text"
    ping: float = 15.0
    unknown_fields: Literal["refuse", "ignore"] = "refuse"
    trace_stamps: bool = False

    @property
    def names(self) -> tuple[str, ...]:
        """Every name that a request may ask for, the served one first."""
        return (self.served_name, *self.aliases)
