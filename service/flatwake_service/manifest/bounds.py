"""What the manifest and `flatwake serve` both refuse, once."""

from typing import Final

CONTEXT_MIN: Final = 16
CONTEXT_MAX: Final = 16777216
PREFILL_MAX: Final = 8192
MEMORY_FRACTION_MIN: Final = 0.05
MEMORY_FRACTION_MAX: Final = 0.95
QUEUE_MIN: Final = 1
QUEUE_MAX: Final = 100000
BODY_MIN: Final = "1Ki"
STARTUP_MIN: Final = "10s"
