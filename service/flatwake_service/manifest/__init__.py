"""The manifest: `flatwake.dev/v1alpha1` InferenceServer, and what a server says about itself.

CRD, reference page, `flatwake up` and the operator come from these models. Imports nothing else of
ours, and of others pydantic and yaml alone.
"""

from flatwake_service.manifest import defaults
from flatwake_service.manifest.arguments import (
    IGNORED_BY_UP,
    Place,
    fetch_arguments,
    ignored_by_up,
    serve_arguments,
)
from flatwake_service.manifest.choices import (
    AccessMode,
    Architecture,
    Backend,
    Graphs,
    KvDtype,
    Metric,
    Strategy,
)
from flatwake_service.manifest.documents import Documents, load, loads, parse
from flatwake_service.manifest.errors import ManifestError
from flatwake_service.manifest.scalars import nanoseconds, quantity, seconds, whole_bytes
from flatwake_service.manifest.sources import FETCHED, Scheme, Source, parse_source, source_label
from flatwake_service.manifest.spec import API_VERSION, KIND, InferenceServer, InferenceServerSpec
from flatwake_service.manifest.status import (
    DeviceStatus,
    ModelStatus,
    Phase,
    ProcessIds,
    Reason,
    ServerStatus,
    Termination,
)

__all__ = [
    "API_VERSION",
    "FETCHED",
    "IGNORED_BY_UP",
    "KIND",
    "AccessMode",
    "Architecture",
    "Backend",
    "DeviceStatus",
    "Documents",
    "Graphs",
    "InferenceServer",
    "InferenceServerSpec",
    "KvDtype",
    "ManifestError",
    "Metric",
    "ModelStatus",
    "Phase",
    "Place",
    "ProcessIds",
    "Reason",
    "Scheme",
    "ServerStatus",
    "Source",
    "Strategy",
    "Termination",
    "defaults",
    "fetch_arguments",
    "ignored_by_up",
    "load",
    "loads",
    "nanoseconds",
    "parse",
    "parse_source",
    "quantity",
    "seconds",
    "serve_arguments",
    "source_label",
    "whole_bytes",
]
