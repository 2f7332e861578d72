"""`spec.template`: Kubernetes' own pieces, put into the pods as they are."""

from typing import Annotated, ClassVar

from pydantic import Field

from flatwake_service.manifest.names import ObjectName, Pairs
from flatwake_service.manifest.part import Fragment, Part, Rule


class EnvVar(Fragment):
    """An EnvVar of core/v1."""

    name: Annotated[str, Field(min_length=1, max_length=253)]
    """The variable's name."""


class Toleration(Fragment):
    """A Toleration of core/v1."""


class Volume(Fragment):
    """A Volume of core/v1."""

    name: Annotated[str, Field(min_length=1, max_length=63)]
    """The volume's name."""


class VolumeMount(Fragment):
    """A VolumeMount of core/v1, for the serving container."""

    name: Annotated[str, Field(min_length=1, max_length=63)]
    """The volume's name."""


class Affinity(Fragment):
    """An Affinity of core/v1."""


class Resources(Fragment):
    """A ResourceRequirements of core/v1."""


VISIBLE_DEVICES = ("ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES")
_OURS = "flatwake.dev/"


def _free_of_ours(pairs: dict[str, str]) -> bool:
    return not any(key.startswith(_OURS) for key in pairs)


class Template(Part):
    """Kubernetes' own pieces, put into the pods as they are."""

    labels: Pairs = Field(default_factory=dict)
    """Labels of the pods."""
    annotations: Pairs = Field(default_factory=dict)
    """Annotations of the pods."""
    node_selector: Pairs = Field(default_factory=dict)
    """Labels that a node must have."""
    affinity: Affinity | None = None
    """Affinity of the pods, besides what accelerator.architectures asks for."""
    tolerations: Annotated[tuple[Toleration, ...], Field(max_length=64)] = ()
    """Taints that the pods tolerate."""
    resources: Resources | None = None
    """Requests and limits of the serving container; the accelerator's own are added."""
    env: Annotated[tuple[EnvVar, ...], Field(max_length=128)] = ()
    """Environment variables of both containers."""
    volumes: Annotated[tuple[Volume, ...], Field(max_length=64)] = ()
    """More volumes."""
    volume_mounts: Annotated[tuple[VolumeMount, ...], Field(max_length=64)] = ()
    """Where the volumes are mounted, in both containers."""
    priority_class_name: ObjectName | None = None
    """The pods' priority class."""
    service_account_name: ObjectName | None = None
    """The pods' service account; one called NAME is made when absent."""
    runtime_class_name: ObjectName | None = None
    """The pods' runtime class."""

    rules: ClassVar = (
        Rule(
            "!has(self.env) || "
            "self.env.all(e, !(e.name in ['ROCR_VISIBLE_DEVICES', 'HIP_VISIBLE_DEVICES']))",
            "ROCR_VISIBLE_DEVICES and HIP_VISIBLE_DEVICES hide the device that the pod was given: "
            "remove them from env",
            lambda self: not any(e.name in VISIBLE_DEVICES for e in self.env),
        ),
        Rule(
            "(!has(self.labels) || self.labels.all(k, !k.startsWith('flatwake.dev/'))) && "
            "(!has(self.annotations) || "
            "self.annotations.all(k, !k.startsWith('flatwake.dev/')))",
            "labels and annotations that begin with flatwake.dev/ are the operator's: rename them",
            lambda self: _free_of_ours(self.labels) and _free_of_ours(self.annotations),
        ),
        Rule(
            "!has(self.volumes) || self.volumes.all(v, !v.name.startsWith('flatwake-'))",
            "volumes that begin with flatwake- are the operator's: rename them",
            lambda self: not any(v.name.startswith("flatwake-") for v in self.volumes),
        ),
    )
