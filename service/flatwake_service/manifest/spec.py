"""`flatwake.dev/v1alpha1`, kind InferenceServer: what a user asks for.

The docstring under a field is its description in the CRD and in the reference page.
"""

import re
from typing import Annotated, Any, ClassVar, Self

from pydantic import Field

from flatwake_service.manifest import bounds, defaults
from flatwake_service.manifest.accelerator import Accelerator
from flatwake_service.manifest.access import Access, Endpoint
from flatwake_service.manifest.choices import AccessMode
from flatwake_service.manifest.engine import Engine, Limits
from flatwake_service.manifest.model import Model
from flatwake_service.manifest.names import ObjectReference
from flatwake_service.manifest.part import Part, Rule
from flatwake_service.manifest.resource import (
    NAME_MAX,
    NAME_PATTERN,
    InferenceServerStatus,
    Metadata,
)
from flatwake_service.manifest.scalars import Duration
from flatwake_service.manifest.scaling import Autoscaling, Rollout
from flatwake_service.manifest.template import Template
from flatwake_service.manifest.units import seconds

API_VERSION = "flatwake.dev/v1alpha1"
KIND = "InferenceServer"
PLURAL = "inferenceservers"


def _most_replicas(spec: "InferenceServerSpec") -> int:
    return spec.autoscaling.max_replicas if spec.autoscaling else spec.replicas


def _claim_is_shareable(spec: "InferenceServerSpec") -> bool:
    claim = spec.model.cache.claim
    shared = claim is None or AccessMode.READ_WRITE_MANY in claim.access_modes
    return shared or _most_replicas(spec) <= 1


class InferenceServerSpec(Part):
    """What is served, on what, and how it is reached."""

    image: Annotated[str, Field(min_length=1, max_length=1024)] | None = None
    """The service image; the operator's own for the backend when absent, which is kept until the
    spec changes."""
    image_pull_secrets: Annotated[tuple[ObjectReference, ...], Field(max_length=16)] = ()
    """Secrets for the image's registry."""
    model: Model
    """The model that is served."""
    accelerator: Accelerator = Accelerator()
    """What the model runs on."""
    replicas: Annotated[int, Field(ge=0, le=1000)] = 1
    """How many pods; not looked at while autoscaling is set."""
    autoscaling: Autoscaling | None = None
    """Let a HorizontalPodAutoscaler choose the number of pods."""
    engine: Engine = Engine()
    """How the engine runs the model."""
    limits: Limits = Limits()
    """What a pod refuses, and what it ends."""
    startup_timeout: Duration = defaults.STARTUP_TIMEOUT
    """The longest time without progress in fetching or loading. A load that makes progress is
    never ended."""
    rollout: Rollout = Rollout()
    """How pods are replaced by new ones."""
    access: Access = Access()
    """Who may call."""
    endpoint: Endpoint = Endpoint()
    """How the pods are reached."""
    template: Template = Template()
    """Kubernetes' own pieces, put into the pods as they are."""

    rules: ClassVar = (
        Rule(
            f"duration(self.startupTimeout) >= duration('{bounds.STARTUP_MIN}')",
            f"startupTimeout must be at least {bounds.STARTUP_MIN}",
            lambda self: seconds(self.startup_timeout) >= seconds(bounds.STARTUP_MIN),
        ),
        Rule(
            "!has(self.model.cache.claim) || 'ReadWriteMany' in self.model.cache.claim.accessModes"
            " || (has(self.autoscaling) ? self.autoscaling.maxReplicas : self.replicas) <= 1",
            "several replicas share the model's claim: set model.cache.claim.accessModes to "
            "[ReadWriteMany], or remove the claim so that each pod has its own cache",
            _claim_is_shareable,
        ),
        Rule(
            "!has(self.model.name) || !has(self.model.aliases) || "
            "!(self.model.name in self.model.aliases)",
            "model.name is among model.aliases: remove it there",
            lambda self: self.model.name not in self.model.aliases,
        ),
    )


class InferenceServer(Part):
    """A model served by pods behind one endpoint."""

    api_version: Annotated[str, Field(pattern=r"^flatwake\.dev/v1alpha1$")] = API_VERSION
    kind: Annotated[str, Field(pattern=r"^InferenceServer$")] = KIND
    metadata: Metadata
    spec: InferenceServerSpec
    """What is served, on what, and how it is reached."""
    status: InferenceServerStatus | None = None
    """What the operator found."""

    rules: ClassVar = (
        Rule(
            f"size(self.metadata.name) <= {NAME_MAX} && "
            f"self.metadata.name.matches('{NAME_PATTERN}')",
            f"metadata.name must be at most {NAME_MAX} characters of a-z, 0-9 and -, and begin "
            "with a letter, since Services and pods are named after it",
            lambda self: bool(
                len(self.metadata.name) <= NAME_MAX and re.match(NAME_PATTERN, self.metadata.name)
            ),
        ),
    )

    @property
    def name(self) -> str:
        return self.metadata.name

    @property
    def served_name(self) -> str:
        """The name that clients ask for."""
        return self.spec.model.name or self.metadata.name

    @classmethod
    def of(cls, data: dict[str, Any]) -> Self:
        """Parses an object as the API server gives it."""
        return cls.model_validate(data)
