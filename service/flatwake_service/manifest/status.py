"""What a server says about itself (`/status`, the termination message), in one closed vocabulary.

Conditions of the InferenceServer use the same reasons, so that one page explains them all.
"""

from enum import StrEnum
from typing import Annotated, Any, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict


class Phase(StrEnum):
    PREFLIGHT = "preflight"
    FETCHING = "fetching"
    LOADING = "loading"
    WARMING = "warming"
    READY = "ready"
    DRAINING = "draining"
    FAILED = "failed"


class Reason(StrEnum):
    """Why something is as it is. A new one may be added, none removed."""

    # The device, seen from the pod (preflight) and from the cluster.
    DEVICE_NODE_MISSING = "DeviceNodeMissing"
    DEVICE_ACCESS_DENIED = "DeviceAccessDenied"
    RUNTIME_MISSING = "RuntimeMissing"
    NO_DEVICE = "NoDevice"
    ARCHITECTURE_UNSUPPORTED = "ArchitectureUnsupported"
    DEVICE_MEMORY_SHORT = "DeviceMemoryShort"
    LIBRARY_UNUSABLE = "LibraryUnusable"
    DEVICE_FOUND = "DeviceFound"
    DEVICES_SHORT = "DevicesShort"
    DEVICE_UNHEALTHY = "DeviceUnhealthy"
    NOT_NEEDED = "NotNeeded"

    # Fetching the model.
    FETCHING = "Fetching"
    SOURCE_INVALID = "SourceInvalid"
    SOURCE_NOT_FOUND = "SourceNotFound"
    SOURCE_DENIED = "SourceDenied"
    SOURCE_UNREACHABLE = "SourceUnreachable"
    DIGEST_MISMATCH = "DigestMismatch"
    CACHE_FULL = "CacheFull"
    CACHE_UNWRITABLE = "CacheUnwritable"
    NO_PROGRESS = "NoProgress"
    DRIFTED = "Drifted"

    # Loading and serving.
    LOADING = "Loading"
    WARMING = "Warming"
    SERVING = "Serving"
    DRAINING = "Draining"
    KEYS_MISSING = "KeysMissing"
    MODEL_MISSING = "ModelMissing"
    MODEL_UNREADABLE = "ModelUnreadable"
    MODEL_UNSUPPORTED = "ModelUnsupported"
    CHAT_TEMPLATE_INVALID = "ChatTemplateInvalid"
    CONTEXT_REDUCED = "ContextReduced"
    OUT_OF_MEMORY = "OutOfMemory"
    DEVICE_HUNG = "DeviceHung"
    DEVICE_FAULT = "DeviceFault"
    ENGINE_FAILED = "EngineFailed"
    PORT_IN_USE = "PortInUse"

    # The InferenceServer in its cluster.
    ACCEPTED = "Accepted"
    INVALID_SPEC = "InvalidSpec"
    TEMPLATE_REFUSED = "TemplateRefused"
    NAME_TAKEN = "NameTaken"
    BACKEND_UNDECIDED = "BackendUndecided"
    REFERENCE_MISSING = "ReferenceMissing"
    API_MISSING = "ApiMissing"
    IMAGE_UNSET = "ImageUnset"
    STARTING = "Starting"
    ROLLING_OUT = "RollingOut"
    WAITING_FOR_DEVICE = "WaitingForDevice"
    UP_TO_DATE = "UpToDate"
    SCALED_TO_ZERO = "ScaledToZero"
    UNSCHEDULABLE = "Unschedulable"
    IMAGE_UNAVAILABLE = "ImageUnavailable"
    CONTAINER_CONFIG = "ContainerConfig"
    CRASH_LOOP = "CrashLoop"
    OOM_KILLED = "OOMKilled"
    EVICTED = "Evicted"
    AUTOSCALER_FAILED = "AutoscalerFailed"
    RECONCILE_FAILED = "ReconcileFailed"
    UNKNOWN = "Unknown"


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
