"""`status` and `metadata` of an InferenceServer."""

from typing import Annotated

from pydantic import Field

from flatwake_service.manifest.part import Fragment, Report

NAME_MAX = 40
NAME_PATTERN = r"^[a-z]([-a-z0-9]*[a-z0-9])?$"


class Condition(Report):
    """One condition, in Kubernetes' own form."""

    type: Annotated[str, Field(max_length=64)]
    """What it is about: Accepted, ModelReady, AcceleratorReady, Progressing or Ready."""
    status: Annotated[str, Field(pattern="^(True|False|Unknown)$")]
    """True, False or Unknown."""
    reason: Annotated[str, Field(max_length=64)]
    """Why, in one word of a closed list."""
    message: Annotated[str, Field(max_length=32768)] = ""
    """Why, in words, and what to do."""
    last_transition_time: Annotated[str, Field(json_schema_extra={"format": "date-time"})]
    """When the status last changed."""
    observed_generation: int | None = None
    """The generation of the InferenceServer that this is about."""


class AcceleratorStatus(Report):
    """What the pods run on."""

    backend: str | None = None
    """The backend that was decided."""
    architecture: str | None = None
    """The GPU architecture that a pod found."""
    device: str | None = None
    """The device's name as a pod found it."""


class ServedModelStatus(Report):
    """The model as the pods have it."""

    name: str | None = None
    """The name that clients ask for."""
    bytes: int | None = None
    """The model's size in bytes."""
    percent: int | None = None
    """How much is fetched and loaded, by the pod that is furthest behind."""
    digest: str | None = None
    """The digest of the files that are served."""
    revision: str | None = None
    """The revision that the source's branch or tag stood for."""


class InferenceServerStatus(Report):
    """What the operator found; all of it can be found again."""

    observed_generation: int | None = None
    """The generation of the InferenceServer that this is about."""
    conditions: Annotated[
        tuple[Condition, ...],
        Field(
            max_length=16,
            json_schema_extra={
                "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["type"],
            },
        ),
    ] = ()
    """Accepted, ModelReady, AcceleratorReady, Progressing and Ready."""
    replicas: int | None = None
    """Pods that exist."""
    ready_replicas: int | None = None
    """Pods that answered a real token."""
    updated_replicas: int | None = None
    """Pods of the newest template."""
    selector: str | None = None
    """Selects the pods, for autoscalers."""
    endpoint: str | None = None
    """Where clients inside the cluster send requests."""
    image: str | None = None
    """The image that is pinned."""
    accelerator: AcceleratorStatus | None = None
    """What the pods run on."""
    model: ServedModelStatus | None = None
    """The model as the pods have it."""


class Metadata(Fragment):
    """The object's own metadata, of which the manifest looks at the name."""

    name: str
    namespace: str | None = None
    labels: dict[str, str] = Field(default_factory=dict)
    annotations: dict[str, str] = Field(default_factory=dict)
    generation: int = 0
    uid: str = ""
