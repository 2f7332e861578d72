"""The words that servers and conditions share: in which phase, and why."""

from enum import StrEnum


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
