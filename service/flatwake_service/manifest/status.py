"""What a server says about itself (`/status`, the termination message), in one closed vocabulary.

Conditions of the InferenceServer use the same reasons, so that one page explains them all.
"""

from typing import Annotated, Any, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict

from flatwake_service.manifest.reasons import Phase, Reason


def _known_phase(value: Any) -> Any:
    return value if value in set(Phase) else None


def _known_reason(value: Any) -> Any:
    return value if value is None or value in set(Reason) else Reason.UNKNOWN


class _Report(BaseModel):
    # A reader ignores what a newer writer adds.
    model_config = ConfigDict(extra="ignore", frozen=True, protected_namespaces=())


class ModelStatus(_Report):
    name: str | None = None
    source: str | None = None
    revision: str | None = None
    digest: str | None = None
    bytes_total: int | None = None
    bytes_done: int | None = None


class DeviceStatus(_Report):
    name: str | None = None
    architecture: str | None = None
    memory_bytes: int | None = None


class ProcessIds(_Report):
    api: int | None = None
    engine: int | None = None


class ServerStatus(_Report):
    """The body of `GET /status`; unknown is null. Fields may be added, none removed."""

    phase: Annotated[Phase | None, BeforeValidator(_known_phase)] = None
    reason: Annotated[Reason | None, BeforeValidator(_known_reason)] = None
    message: str | None = None
    model: ModelStatus = ModelStatus()
    backend: str | None = None
    device: DeviceStatus = DeviceStatus()
    context: int | None = None
    kv_tokens: int | None = None
    max_sequences: int | None = None
    pids: ProcessIds = ProcessIds()
    version: str | None = None


class Termination(_Report):
    """What a process that ends on its own writes to /dev/termination-log."""

    reason: Annotated[Reason | None, BeforeValidator(_known_reason)] = None
    message: str | None = None

    @classmethod
    def read(cls, text: str | None) -> Self | None:
        """Parses a container's termination message; None if it isn't one of ours."""
        try:
            return cls.model_validate_json(text) if text and text.startswith("{") else None
        except ValueError:
            return None
