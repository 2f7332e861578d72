"""How late a process comes to its turn: a client that is starved measures itself."""

from __future__ import annotations

import time
from collections.abc import Callable

_PULSE = 0.02


def feel(tell: Callable[[float], None]) -> None:
    """Forever: sleeps a moment and tells how many seconds too late it woke."""
    while True:
        due = time.monotonic() + _PULSE
        time.sleep(_PULSE)
        tell(time.monotonic() - due)
