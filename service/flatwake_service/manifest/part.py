"""The base of the manifest's models, and rules that hold in Python and in the API server alike."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from pydantic import BaseModel, ConfigDict, model_validator
from pydantic.alias_generators import to_camel
from pydantic_core import PydanticCustomError


@dataclass(frozen=True)
class Rule:
    """One promise about an object: a CEL expression for the CRD and its twin in Python.

    `cel` sees the object as `self` (camelCase); a transition rule (one that names `oldSelf`) has
    no twin, since a file has no past.
    """

    cel: str
    message: str
    holds: Callable[[Any], bool] | None = None


class Part(BaseModel):
    """A piece of the manifest: camelCase names, nothing unknown, nothing changes after parsing."""

    model_config = ConfigDict(
        alias_generator=to_camel,
        populate_by_name=True,
        extra="forbid",
        frozen=True,
    )

    rules: ClassVar[tuple[Rule, ...]] = ()

    @model_validator(mode="after")
    def _check_rules(self) -> Self:
        for rule in self.rules:
            if rule.holds is not None and not rule.holds(self):
                raise PydanticCustomError("rule", "{text}", {"text": rule.message})
        return self


class Fragment(BaseModel):
    """A piece whose shape is Kubernetes' own: kept as it is, judged by the API server."""

    model_config = ConfigDict(extra="allow", frozen=True)


class Report(BaseModel):
    """A piece that the operator writes: read leniently, since a newer operator may add to it."""

    model_config = ConfigDict(
        alias_generator=to_camel, populate_by_name=True, extra="ignore", frozen=True
    )
