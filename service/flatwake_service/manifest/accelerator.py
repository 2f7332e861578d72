"""`spec.accelerator`: what the model runs on."""

from typing import Annotated, ClassVar

from pydantic import Field

from flatwake_service.manifest import defaults
from flatwake_service.manifest.choices import Architecture, Backend
from flatwake_service.manifest.names import ObjectName
from flatwake_service.manifest.part import Part, Rule
from flatwake_service.manifest.scalars import Quantity


class CelExpression(Part):
    """An expression of the Common Expression Language."""

    expression: Annotated[str, Field(min_length=1, max_length=10240)]
    """The expression, over `device`."""


class DeviceSelector(Part):
    """A condition on a device, as in a ResourceClaim."""

    cel: CelExpression
    """The condition."""


class DeviceClaim(Part):
    """Take the device by a ResourceClaim (dynamic resource allocation)."""

    device_class_name: ObjectName = defaults.DEVICE_CLASS
    """The DeviceClass that the claim names."""
    selectors: Annotated[tuple[DeviceSelector, ...], Field(max_length=16)] = ()
    """Conditions on the device besides architectures and minMemory."""


GroupId = Annotated[int, Field(ge=1, le=2147483647)]
Groups = Annotated[tuple[GroupId, ...], Field(min_length=1, max_length=32)]


class Accelerator(Part):
    """What the model runs on."""

    backend: Backend = Backend.AUTO
    """`Auto` is Hip if a node advertises the resource when the pods are first written, else Cpu;
    the choice is kept. A Hip pod never falls back to the CPU."""
    resource: Annotated[
        str,
        Field(
            max_length=253, pattern=r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?/[A-Za-z0-9][-A-Za-z0-9_.]*$"
        ),
    ] = defaults.RESOURCE
    """The device plugin's resource, one of which a pod takes."""
    architectures: Annotated[tuple[Architecture, ...], Field(max_length=16)] = ()
    """Which GPU architectures may be used; all that are built in when empty."""
    min_memory: Quantity | None = None
    """The least device memory."""
    render_groups: Groups | None = None
    """Group ids that may open /dev/dri and /dev/kfd on your nodes; the chart's list if absent."""
    claim: DeviceClaim | None = None
    """Take the device by a ResourceClaim in place of the device plugin's resource."""

    rules: ClassVar = (
        Rule(
            "self.backend != 'Cpu' || !has(self.claim)",
            "backend Cpu takes no device: remove accelerator.claim",
            lambda self: self.backend is not Backend.CPU or self.claim is None,
        ),
    )
