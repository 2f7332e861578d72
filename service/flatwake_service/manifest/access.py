"""`spec.access` and `spec.endpoint`: who may call, and where."""

from typing import Annotated, ClassVar

from pydantic import Field

from flatwake_service.manifest import defaults
from flatwake_service.manifest.choices import ServiceType
from flatwake_service.manifest.names import ObjectName, ObjectReference, Pairs, Port
from flatwake_service.manifest.part import Fragment, Part, Rule


class NetworkPolicyPeer(Fragment):
    """A NetworkPolicyPeer of networking.k8s.io/v1."""


Peers = Annotated[tuple[NetworkPolicyPeer, ...], Field(min_length=1, max_length=64)]
Origin = Annotated[str, Field(min_length=1, max_length=253)]
Origins = Annotated[tuple[Origin, ...], Field(max_length=32)]


class Access(Part):
    """Who may call."""

    api_keys_secret: ObjectReference | None = None
    """A Secret whose every value is an API key; a changed one is in force without a restart."""
    cors_origins: Origins = ()
    """Origins whose pages may call from a browser, or `*`."""
    from_: Peers | None = Field(default=None, alias="from")
    """Who may reach the pods: a NetworkPolicy is made of these peers (enforced by the cluster's
    network plugin, if it does)."""
    metrics_from: Peers | None = None
    """Who else may reach the pods to read metrics, where `from` is set."""

    rules: ClassVar = (
        Rule(
            "!has(self.metricsFrom) || has(self.from)",
            "metricsFrom widens from: set access.from too",
            lambda self: self.metrics_from is None or self.from_ is not None,
        ),
    )


class PickerReference(Part):
    """The Service of an endpoint picker."""

    name: ObjectName
    """The Service's name."""
    port: Port = defaults.PICKER_PORT
    """The Service's port."""


class Endpoint(Part):
    """How the pods are reached."""

    port: Port = defaults.SERVE_PORT
    """The Service's port; pods listen on 8000."""
    type: ServiceType = ServiceType.CLUSTER_IP
    """The Service's type."""
    annotations: Pairs = Field(default_factory=dict)
    """The Service's annotations."""
    picker_ref: PickerReference | None = None
    """Makes an InferencePool (Gateway API inference extension) with this endpoint picker."""
