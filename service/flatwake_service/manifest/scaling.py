"""`spec.autoscaling` and `spec.rollout`: how many pods, and how they are replaced."""

from typing import Annotated, ClassVar

from pydantic import Field

from flatwake_service.manifest.choices import Metric, Strategy
from flatwake_service.manifest.part import Part, Rule


class Autoscaling(Part):
    """A HorizontalPodAutoscaler over the pods."""

    min_replicas: Annotated[int, Field(ge=1, le=1000)] = 1
    """Never fewer pods than this."""
    max_replicas: Annotated[int, Field(ge=1, le=1000)]
    """Never more pods than this."""
    metric: Metric = Metric.QUEUE
    """`Queue`: requests in flight a pod (needs a metrics adapter that serves
    flatwake_requests_in_flight). `Cpu`: use of the CPU request in percent."""
    target: Annotated[int, Field(ge=1, le=10000)] | None = None
    """What the metric is kept at; for Queue 0.75 of maxSequences when absent, for Cpu 80."""

    rules: ClassVar = (
        Rule(
            "self.minReplicas <= self.maxReplicas",
            "minReplicas is more than maxReplicas: lower the one or raise the other",
            lambda self: self.min_replicas <= self.max_replicas,
        ),
    )


class Rollout(Part):
    """How pods are replaced by new ones."""

    strategy: Strategy = Strategy.AUTO
    """`Surge` starts the new pod first, `Replace` ends the old one first, `Auto` is Surge where a
    device is free for one more pod, else Replace."""
