"""What the chart tells the operator, and what is decided once for each server."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from flatwake_service.manifest import Backend, InferenceServer, Strategy, defaults

Object = dict[str, Any]
"""A Kubernetes object, or a piece of one, as JSON has it."""


@dataclass(frozen=True)
class Settings:
    """The operator's configuration.

    images: the default service image by backend; a missing one asks for spec.image.
    namespace, labels: where the operator's own pods are, for NetworkPolicies.
    """

    images: Mapping[Backend, str] = field(default_factory=dict)
    render_groups: tuple[int, ...] = defaults.RENDER_GROUPS
    namespace: str = "flatwake-system"
    labels: Mapping[str, str] = field(
        default_factory=lambda: {"app.kubernetes.io/name": "flatwake-operator"}
    )


@dataclass(frozen=True)
class Decision:
    """What a server's pods are made with; kept in a ControllerRevision.

    labelled: whether nodes carry the device labels that architectures are looked up by.
    """

    image: str
    backend: Backend
    strategy: Strategy
    labelled: bool = False


@dataclass(frozen=True)
class Context:
    """What every builder gets."""

    server: InferenceServer
    settings: Settings
    decision: Decision

    @property
    def name(self) -> str:
        return self.server.name

    @property
    def namespace(self) -> str:
        return self.server.metadata.namespace or "default"

    def part(self, part: str) -> str:
        """The name of a child: NAME-part."""
        return f"{self.name}-{part}"
