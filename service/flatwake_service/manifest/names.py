"""Names, ports and references that several parts of the manifest use."""

from typing import Annotated

from pydantic import Field

from flatwake_service.manifest.part import Part

ObjectName = Annotated[str, Field(min_length=1, max_length=253)]
ModelName = Annotated[str, Field(min_length=1, max_length=253)]
Port = Annotated[int, Field(ge=1, le=65535)]
Pairs = Annotated[dict[str, str], Field(max_length=64)]


class ObjectReference(Part):
    """An object of the same namespace, by name."""

    name: ObjectName
    """The object's name."""


class KeyReference(Part):
    """A key of a ConfigMap or Secret of the same namespace."""

    name: ObjectName
    """The object's name."""
    key: Annotated[str, Field(min_length=1, max_length=253, pattern=r"^[-._a-zA-Z0-9]+$")]
    """The key inside the object's data."""
