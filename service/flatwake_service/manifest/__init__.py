"""The manifest: `flatwake.dev/v1alpha1` InferenceServer, and what a server says about itself.

CRD, reference page, `flatwake up` and the operator come from these models. Imports nothing else of
ours, and of others pydantic and yaml alone; each module when one of its names is first asked for,
so that a server doesn't make the models of a resource that it never sees.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
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
    from flatwake_service.manifest.reasons import Phase, Reason
    from flatwake_service.manifest.sources import (
        FETCHED,
        Scheme,
        Source,
        parse_source,
        source_label,
    )
    from flatwake_service.manifest.spec import (
        API_VERSION,
        KIND,
        InferenceServer,
        InferenceServerSpec,
    )
    from flatwake_service.manifest.status import (
        DeviceStatus,
        ModelStatus,
        ProcessIds,
        ServerStatus,
        Termination,
    )
    from flatwake_service.manifest.units import nanoseconds, quantity, seconds, whole_bytes

_NAMES = {
    "arguments": "IGNORED_BY_UP Place fetch_arguments ignored_by_up serve_arguments",
    "choices": "AccessMode Architecture Backend Graphs KvDtype Metric Strategy",
    "documents": "Documents load loads parse",
    "errors": "ManifestError",
    "units": "nanoseconds quantity seconds whole_bytes",
    "reasons": "Phase Reason",
    "sources": "FETCHED Scheme Source parse_source source_label",
    "spec": "API_VERSION KIND InferenceServer InferenceServerSpec",
    "status": "DeviceStatus ModelStatus ProcessIds ServerStatus Termination",
}
"""By module."""
_HOME = {name: module for module, names in _NAMES.items() for name in names.split()}


def __getattr__(name: str) -> object:
    if name == "defaults":
        return import_module(f"{__name__}.{name}")
    if name not in _HOME:
        raise AttributeError(f"module {__name__} has no attribute {name}")
    return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)


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
