"""Kubernetes' quantities (`20Gi`) and Go's durations (`1m30s`), as strings that keep their form."""

from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field

from flatwake_service.manifest.units import (
    DURATION_PATTERN,
    QUANTITY_PATTERN,
    nanoseconds,
    quantity,
)


def _text(example: str) -> BeforeValidator:
    def check(value: Any) -> Any:
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            raise ValueError(f"write it with its unit, as a string: {example}")
        return value

    return BeforeValidator(check)


def _parsed_quantity(text: str) -> str:
    quantity(text)
    return text


def _parsed_duration(text: str) -> str:
    nanoseconds(text)
    return text


class QuantityMark:
    """Tells walkers over the models (pins, CRD) that a string is a quantity."""


class DurationMark:
    """Tells walkers over the models (pins, CRD) that a string is a duration."""


Quantity = Annotated[
    str,
    _text("20Gi"),
    AfterValidator(_parsed_quantity),
    Field(max_length=32, json_schema_extra={"pattern": QUANTITY_PATTERN}),
    QuantityMark(),
]
Duration = Annotated[
    str,
    _text("90s"),
    AfterValidator(_parsed_duration),
    Field(max_length=32, json_schema_extra={"pattern": DURATION_PATTERN}),
    DurationMark(),
]
