"""A spec as the arguments of `flatwake serve` and `flatwake fetch`.

`flatwake up` and the Deployment's builder share these, so that a laptop and a cluster run the same.
Only what differs from the commands' own defaults is passed.
"""

from dataclasses import dataclass

from flatwake_service.manifest import defaults
from flatwake_service.manifest.choices import Backend, Graphs, KvDtype
from flatwake_service.manifest.sources import Scheme, parse_source
from flatwake_service.manifest.spec import InferenceServer
from flatwake_service.manifest.units import nanoseconds, quantity


@dataclass(frozen=True)
class Place:
    """What is decided outside the spec: where things lie on the machine that serves.

    backend: already decided where the spec says Auto, else None (serve decides: `auto`).
    """

    model: str
    host: str | None = None
    port: int | None = None
    backend: Backend | None = None
    api_keys_dir: str | None = None
    chat_template: str | None = None


def serve_arguments(server: InferenceServer, place: Place) -> list[str]:
    """The arguments after `flatwake serve`."""
    spec = server.spec
    arguments = _Arguments()
    arguments.add("--model", place.model)
    arguments.add("--served-name", server.served_name)
    for alias in spec.model.aliases:
        arguments.add("--alias", alias)
    arguments.add("--host", place.host)
    if place.port != defaults.SERVE_PORT:
        arguments.add("--port", place.port)
    backend = place.backend or spec.accelerator.backend
    if backend is not Backend.AUTO:
        arguments.add("--backend", backend.lower())
    _engine(server, arguments)
    _limits(server, arguments)
    arguments.add("--api-keys-dir", place.api_keys_dir)
    for origin in spec.access.cors_origins:
        arguments.add("--cors-origin", origin)
    arguments.add("--chat-template", place.chat_template)
    return arguments.words


def _engine(server: InferenceServer, arguments: "_Arguments") -> None:
    engine = server.spec.engine
    if engine.max_sequences != defaults.MAX_SEQUENCES:
        arguments.add("--max-sequences", engine.max_sequences)
    arguments.add("--context-length", engine.context_length)
    if engine.prefill_tokens != defaults.PREFILL_TOKENS:
        arguments.add("--prefill-tokens", engine.prefill_tokens)
    arguments.add("--kv-memory-fraction", engine.kv_cache.memory_fraction)
    if engine.kv_cache.dtype is not KvDtype.AUTO:
        arguments.add("--kv-dtype", engine.kv_cache.dtype.lower())
    if engine.graphs is not Graphs.AUTO:
        arguments.add("--graphs", engine.graphs.lower())


def _limits(server: InferenceServer, arguments: "_Arguments") -> None:
    spec = server.spec
    limits = spec.limits
    if limits.queue != defaults.QUEUE:
        arguments.add("--queue", limits.queue)
    arguments.add_duration("--queue-timeout", limits.queue_timeout, defaults.QUEUE_TIMEOUT)
    arguments.add_duration("--request-timeout", limits.request_timeout, defaults.REQUEST_TIMEOUT)
    arguments.add_duration("--step-timeout", limits.step_timeout, defaults.STEP_TIMEOUT)
    if quantity(limits.body_bytes) != quantity(defaults.BODY_BYTES):
        arguments.add("--body-bytes", limits.body_bytes)
    # serve knows no "absent": what the spec leaves to requestTimeout is said here.
    drain = limits.drain_timeout or limits.request_timeout
    arguments.add_duration("--drain-timeout", drain, defaults.REQUEST_TIMEOUT)
    arguments.add_duration("--startup-timeout", spec.startup_timeout, defaults.STARTUP_TIMEOUT)


def fetch_arguments(
    server: InferenceServer,
    *,
    cache: str,
    backend: Backend,
    token_file: str | None = None,
    pinned_dir: str | None = None,
) -> list[str]:
    """The arguments after `flatwake fetch`, in a pod.

    cache: the folder to fill. pinned_dir: a folder with the files `source`, `revision` and
    `digest` (a mounted ConfigMap) of what another pod has resolved; it may be empty or absent.
    backend: on Hip the device is looked at first, so that a wrong node fails early.
    """
    spec = server.spec
    source = parse_source(spec.model.source)
    arguments = _Arguments()
    if source.scheme is Scheme.PVC:
        # The claim is mounted where the cache would be: its files are there, and only verified.
        arguments.words.append(f"file://{source.location(cache)}")
    else:
        arguments.words.append(source.text)
    arguments.add("--cache", cache)
    arguments.add("--digest", spec.model.digest)
    arguments.add("--token-file", token_file)
    arguments.add("--pinned-dir", pinned_dir)
    arguments.add("--status-port", defaults.SERVE_PORT)
    arguments.add_duration("--startup-timeout", spec.startup_timeout, defaults.STARTUP_TIMEOUT)
    if backend is Backend.HIP:
        arguments.words.append("--preflight")
        for architecture in spec.accelerator.architectures:
            arguments.add("--architecture", architecture)
        arguments.add("--min-memory", spec.accelerator.min_memory)
    return arguments.words


class _Arguments:
    def __init__(self) -> None:
        self.words: list[str] = []

    def add(self, flag: str, value: str | int | float | None) -> None:
        if value is not None:
            self.words += [flag, str(value)]

    def add_duration(self, flag: str, value: str, default: str) -> None:
        if nanoseconds(value) != nanoseconds(default):
            self.add(flag, value)


IGNORED_BY_UP = (
    "image",
    "imagePullSecrets",
    "model.cache",
    "accelerator.resource",
    "accelerator.architectures",
    "accelerator.minMemory",
    "accelerator.renderGroups",
    "accelerator.claim",
    "replicas",
    "autoscaling",
    "rollout",
    "access.from",
    "access.metricsFrom",
    "endpoint.type",
    "endpoint.annotations",
    "endpoint.pickerRef",
    "template",
)
"""Paths under spec that mean nothing without a cluster."""


def ignored_by_up(server: InferenceServer) -> list[str]:
    """The fields that the file sets and that `flatwake up` doesn't look at, for one line."""
    given = server.model_dump(by_alias=True, exclude_unset=True)["spec"]
    found = []
    for path in IGNORED_BY_UP:
        value = given
        for piece in path.split("."):
            value = value.get(piece) if isinstance(value, dict) else None
        if value is not None:
            found.append(path)
    return found
