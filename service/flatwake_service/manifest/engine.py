"""`spec.engine` and `spec.limits`: how the model runs, and what a pod refuses."""

from typing import Annotated, ClassVar

from pydantic import Field

from flatwake_service.manifest import bounds, defaults
from flatwake_service.manifest.choices import Graphs, KvDtype
from flatwake_service.manifest.part import Part, Rule
from flatwake_service.manifest.scalars import Duration, Quantity
from flatwake_service.manifest.units import quantity, seconds


class KvCache(Part):
    """Memory for keys and values."""

    memory_fraction: (
        Annotated[float, Field(ge=bounds.MEMORY_FRACTION_MIN, le=bounds.MEMORY_FRACTION_MAX)] | None
    ) = None
    """The share of the memory left after the weights; 0.9 on a GPU, 0.5 on the CPU if absent."""
    dtype: KvDtype = KvDtype.AUTO
    """`Auto` is the checkpoint's type."""


class Engine(Part):
    """How the engine runs the model."""

    max_sequences: Annotated[int, Field(ge=1, le=defaults.MAX_SEQUENCES_LIMIT)] = (
        defaults.MAX_SEQUENCES
    )
    """How many sequences are decoded at once."""
    context_length: Annotated[int, Field(ge=bounds.CONTEXT_MIN, le=bounds.CONTEXT_MAX)] | None = (
        None
    )
    """The longest prompt and answer together, in tokens; the model's own when absent."""
    prefill_tokens: Annotated[
        int,
        Field(ge=defaults.PREFILL_GRAIN, le=bounds.PREFILL_MAX, multiple_of=defaults.PREFILL_GRAIN),
    ] = defaults.PREFILL_TOKENS
    """How many tokens of waiting prompts one step takes; a multiple of 64."""
    kv_cache: KvCache = KvCache()
    """Memory for keys and values."""
    graphs: Graphs = Graphs.AUTO
    """Device graphs for decode steps. Write On and Off in quotes: YAML reads them as booleans."""


def _positive(field: str) -> Rule:
    name = "".join(("_" + c.lower()) if c.isupper() else c for c in field)
    return Rule(
        f"!has(self.{field}) || duration(self.{field}) > duration('0s')",
        f"{field} must be more than 0s",
        lambda self: getattr(self, name) is None or seconds(getattr(self, name)) > 0,
    )


class Limits(Part):
    """What a pod refuses, and what it ends."""

    queue: Annotated[int, Field(ge=bounds.QUEUE_MIN, le=bounds.QUEUE_MAX)] = defaults.QUEUE
    """How many requests may wait; more are answered with 429 and Retry-After."""
    queue_timeout: Duration = defaults.QUEUE_TIMEOUT
    """The longest wait before a request is answered with 503 and Retry-After."""
    request_timeout: Duration = defaults.REQUEST_TIMEOUT
    """The longest that one request may run."""
    step_timeout: Duration = defaults.STEP_TIMEOUT
    """A step of the engine longer than this means a hung device, and the pod is restarted."""
    body_bytes: Quantity = defaults.BODY_BYTES
    """The largest request body; a larger one is answered with 413."""
    drain_timeout: Duration | None = None
    """How long running requests may go on once a pod is asked to stop; requestTimeout if absent."""

    rules: ClassVar = (
        *map(_positive, ("queueTimeout", "requestTimeout", "stepTimeout", "drainTimeout")),
        Rule(
            f"quantity(self.bodyBytes).compareTo(quantity('{bounds.BODY_MIN}')) >= 0",
            f"bodyBytes must be at least {bounds.BODY_MIN}",
            lambda self: quantity(self.body_bytes) >= quantity(bounds.BODY_MIN),
        ),
    )
