"""`flatwake.dev/v1alpha1`, kind InferenceServer: what a user asks for.

The docstring under a field is its description in the CRD and in the reference page.
"""

import re
from enum import StrEnum
from typing import Annotated, Any, ClassVar, Self

from pydantic import AfterValidator, Field

from flatwake_service.manifest import defaults
from flatwake_service.manifest.part import Fragment, Part, Report, Rule
from flatwake_service.manifest.scalars import Duration, Quantity, quantity, seconds
from flatwake_service.manifest.sources import SOURCE_PATTERN, parse_source

API_VERSION = "flatwake.dev/v1alpha1"
KIND = "InferenceServer"
PLURAL = "inferenceservers"
NAME_MAX = 40
NAME_PATTERN = r"^[a-z]([-a-z0-9]*[a-z0-9])?$"


class Backend(StrEnum):
    AUTO = "Auto"
    HIP = "Hip"
    CPU = "Cpu"


class Architecture(StrEnum):
    GFX906 = "gfx906"
    GFX908 = "gfx908"
    GFX90A = "gfx90a"
    GFX942 = "gfx942"
    GFX950 = "gfx950"
    GFX1030 = "gfx1030"
    GFX1100 = "gfx1100"
    GFX1151 = "gfx1151"
    GFX1200 = "gfx1200"
    GFX1201 = "gfx1201"


class KvDtype(StrEnum):
    AUTO = "Auto"
    FLOAT16 = "Float16"
    BFLOAT16 = "BFloat16"
    FLOAT32 = "Float32"


class Graphs(StrEnum):
    AUTO = "Auto"
    ON = "On"
    OFF = "Off"


class Metric(StrEnum):
    QUEUE = "Queue"
    CPU = "Cpu"


class Strategy(StrEnum):
    AUTO = "Auto"
    SURGE = "Surge"
    REPLACE = "Replace"


class ServiceType(StrEnum):
    CLUSTER_IP = "ClusterIP"
    NODE_PORT = "NodePort"
    LOAD_BALANCER = "LoadBalancer"


class AccessMode(StrEnum):
    READ_WRITE_ONCE = "ReadWriteOnce"
    READ_WRITE_MANY = "ReadWriteMany"
    READ_WRITE_ONCE_POD = "ReadWriteOncePod"


def _source(text: str) -> str:
    parse_source(text)
    return text


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


class CacheClaim(Part):
    """A PersistentVolumeClaim that holds the model files."""

    storage_class_name: ObjectName | None = None
    """The claim's storage class; the cluster's default when absent."""
    access_modes: Annotated[tuple[AccessMode, ...], Field(min_length=1, max_length=3)] = (
        AccessMode.READ_WRITE_ONCE,
    )
    """How the claim may be mounted. More than one replica needs ReadWriteMany."""
    name: ObjectName | None = None
    """An existing claim to use; when absent one called NAME-cache is made and owned."""

    rules: ClassVar = (
        Rule(
            "!(has(self.name) && has(self.storageClassName))",
            "an existing claim has its own storage class: remove storageClassName, or name",
            lambda self: self.name is None or self.storage_class_name is None,
        ),
    )


class Cache(Part):
    """Where fetched model files are kept."""

    size: Quantity = defaults.CACHE_SIZE
    """Room for the model files. Without a claim it is the emptyDir's sizeLimit and the pod's
    request for ephemeral storage."""
    claim: CacheClaim | None = None
    """Keep the files in a PersistentVolumeClaim, so that a new pod needn't fetch again."""

    rules: ClassVar = (
        Rule(
            "quantity(self.size).isGreaterThan(quantity('0'))",
            "size must be more than 0: the model files need room, such as 20Gi",
            lambda self: quantity(self.size) > 0,
        ),
        Rule(
            "!has(oldSelf.claim) || (has(self.claim) && self.claim == oldSelf.claim)",
            "a claim can't be changed or removed: its files would be lost; "
            "make another InferenceServer",
        ),
        Rule(
            "!has(oldSelf.claim) || quantity(self.size).compareTo(quantity(oldSelf.size)) >= 0",
            "a claim can't shrink: keep size or raise it",
        ),
    )


class Model(Part):
    """The model that is served."""

    source: Annotated[
        str,
        AfterValidator(_source),
        Field(min_length=1, max_length=1024, json_schema_extra={"pattern": SOURCE_PATTERN}),
    ]
    """Where the model comes from: `hf://org/repo@revision[/file]`, `https://host/file`,
    `http://host/file` (with a digest), `file:///path` (inside the pod), `pvc://claim/path`
    (mounted read-only) or `pypi://package==version/file`."""
    digest: Annotated[str, Field(max_length=71, pattern=r"^sha256:[0-9a-f]{64}$")] | None = None
    """`sha256:…` of the file; of a folder, over its sorted `sha256  path` lines, which
    `flatwake fetch` prints. A model with another digest is refused."""
    name: ModelName | None = None
    """The name that clients ask for; metadata.name when absent."""
    aliases: Annotated[tuple[ModelName, ...], Field(max_length=16)] = ()
    """Other names that clients may ask for."""
    chat_template: KeyReference | None = None
    """A ConfigMap's key that replaces the model's own chat template."""
    token_secret: KeyReference | None = None
    """A Secret's key with the token that the source asks for."""
    cache: Cache = Cache()
    """Where fetched model files are kept."""

    rules: ClassVar = (
        Rule(
            "!self.source.startsWith('http://') || has(self.digest)",
            "http:// can be tampered with on the way: add model.digest, or use https://",
            lambda self: not self.source.startswith("http://") or self.digest is not None,
        ),
        Rule(
            "!self.source.startsWith('pvc://') || !has(self.cache.claim)",
            "pvc:// is used where it lies: remove model.cache.claim",
            lambda self: not self.source.startswith("pvc://") or self.cache.claim is None,
        ),
        Rule(
            "!has(self.aliases) || self.aliases.all(a, self.aliases.exists_one(b, a == b))",
            "an alias appears twice: remove one",
            lambda self: len(set(self.aliases)) == len(self.aliases),
        ),
    )


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


class Autoscaling(Part):
    """A HorizontalPodAutoscaler over the pods."""

    min_replicas: Annotated[int, Field(ge=1, le=1000)] = 1
    """Never fewer pods than this."""
    max_replicas: Annotated[int, Field(ge=1, le=1000)]
    """Never more pods than this."""
    metric: Metric = Metric.QUEUE
    """`Queue`: requests in flight a pod (needs a metrics adapter that serves
    flatwake_requests_in_flight). `Cpu`: use of the CPU request in percent."""
    target: Annotated[int, Field(ge=1, le=10000)] | None = None
    """What the metric is kept at; for Queue 0.75 of maxSequences when absent, for Cpu 80."""

    rules: ClassVar = (
        Rule(
            "self.minReplicas <= self.maxReplicas",
            "minReplicas is more than maxReplicas: lower the one or raise the other",
            lambda self: self.min_replicas <= self.max_replicas,
        ),
    )


class KvCache(Part):
    """Memory for keys and values."""

    memory_fraction: Annotated[float, Field(ge=0.05, le=0.95)] | None = None
    """The share of the memory left after the weights; 0.9 on a GPU, 0.5 on the CPU if absent."""
    dtype: KvDtype = KvDtype.AUTO
    """`Auto` is the checkpoint's type."""


class Engine(Part):
    """How the engine runs the model."""

    max_sequences: Annotated[int, Field(ge=1, le=defaults.MAX_SEQUENCES_LIMIT)] = (
        defaults.MAX_SEQUENCES
    )
    """How many sequences are decoded at once."""
    context_length: Annotated[int, Field(ge=16, le=16777216)] | None = None
    """The longest prompt and answer together, in tokens; the model's own when absent."""
    prefill_tokens: Annotated[
        int, Field(ge=defaults.PREFILL_GRAIN, le=8192, multiple_of=defaults.PREFILL_GRAIN)
    ] = defaults.PREFILL_TOKENS
    """How many tokens of waiting prompts one step takes; a multiple of 64."""
    kv_cache: KvCache = KvCache()
    """Memory for keys and values."""
    graphs: Graphs = Graphs.AUTO
    """Device graphs for decode steps. Write On and Off in quotes: YAML reads them as booleans."""


def _positive(field: str) -> Rule:
    name = "".join(("_" + c.lower()) if c.isupper() else c for c in field)
    return Rule(
        f"!has(self.{field}) || duration(self.{field}) > duration('0s')",
        f"{field} must be more than 0s",
        lambda self: getattr(self, name) is None or seconds(getattr(self, name)) > 0,
    )


class Limits(Part):
    """What a pod refuses, and what it ends."""

    queue: Annotated[int, Field(ge=1, le=100000)] = defaults.QUEUE
    """How many requests may wait; more are answered with 429 and Retry-After."""
    queue_timeout: Duration = defaults.QUEUE_TIMEOUT
    """The longest wait before a request is answered with 503 and Retry-After."""
    request_timeout: Duration = defaults.REQUEST_TIMEOUT
    """The longest that one request may run."""
    step_timeout: Duration = defaults.STEP_TIMEOUT
    """A step of the engine longer than this means a hung device, and the pod is restarted."""
    body_bytes: Quantity = defaults.BODY_BYTES
    """The largest request body; a larger one is answered with 413."""
    drain_timeout: Duration | None = None
    """How long running requests may go on once a pod is asked to stop; requestTimeout if absent."""

    rules: ClassVar = (
        *map(_positive, ("queueTimeout", "requestTimeout", "stepTimeout", "drainTimeout")),
        Rule(
            "quantity(self.bodyBytes).compareTo(quantity('1Ki')) >= 0",
            "bodyBytes must be at least 1Ki",
            lambda self: quantity(self.body_bytes) >= 1024,
        ),
    )


class Rollout(Part):
    """How pods are replaced by new ones."""

    strategy: Strategy = Strategy.AUTO
    """`Surge` starts the new pod first, `Replace` ends the old one first, `Auto` is Surge where a
    device is free for one more pod, else Replace."""


class NetworkPolicyPeer(Fragment):
    """A NetworkPolicyPeer of networking.k8s.io/v1."""


Peers = Annotated[tuple[NetworkPolicyPeer, ...], Field(min_length=1, max_length=64)]
Origin = Annotated[str, Field(min_length=1, max_length=253)]
Origins = Annotated[tuple[Origin, ...], Field(max_length=32)]


class Access(Part):
    """Who may call."""

    api_keys_secret: ObjectReference | None = None
    """A Secret whose every value is an API key; a changed one is in force without a restart."""
    cors_origins: Origins = ()
    """Origins whose pages may call from a browser, or `*`."""
    from_: Peers | None = Field(default=None, alias="from")
    """Who may reach the pods: a NetworkPolicy is made of these peers (enforced by the cluster's
    network plugin, if it does)."""
    metrics_from: Peers | None = None
    """Who else may reach the pods to read metrics, where `from` is set."""

    rules: ClassVar = (
        Rule(
            "!has(self.metricsFrom) || has(self.from)",
            "metricsFrom widens from: set access.from too",
            lambda self: self.metrics_from is None or self.from_ is not None,
        ),
    )


class PickerReference(Part):
    """The Service of an endpoint picker."""

    name: ObjectName
    """The Service's name."""
    port: Port = defaults.PICKER_PORT
    """The Service's port."""


class Endpoint(Part):
    """How the pods are reached."""

    port: Port = defaults.SERVE_PORT
    """The Service's port; pods listen on 8000."""
    type: ServiceType = ServiceType.CLUSTER_IP
    """The Service's type."""
    annotations: Pairs = Field(default_factory=dict)
    """The Service's annotations."""
    picker_ref: PickerReference | None = None
    """Makes an InferencePool (Gateway API inference extension) with this endpoint picker."""


class EnvVar(Fragment):
    """An EnvVar of core/v1."""

    name: Annotated[str, Field(min_length=1, max_length=253)]
    """The variable's name."""


class Toleration(Fragment):
    """A Toleration of core/v1."""


class Volume(Fragment):
    """A Volume of core/v1."""

    name: Annotated[str, Field(min_length=1, max_length=63)]
    """The volume's name."""


class VolumeMount(Fragment):
    """A VolumeMount of core/v1, for the serving container."""

    name: Annotated[str, Field(min_length=1, max_length=63)]
    """The volume's name."""


class Affinity(Fragment):
    """An Affinity of core/v1."""


class Resources(Fragment):
    """A ResourceRequirements of core/v1."""


VISIBLE_DEVICES = ("ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES")
_OURS = "flatwake.dev/"


def _free_of_ours(pairs: dict[str, str]) -> bool:
    return not any(key.startswith(_OURS) for key in pairs)


class Template(Part):
    """Kubernetes' own pieces, put into the pods as they are."""

    labels: Pairs = Field(default_factory=dict)
    """Labels of the pods."""
    annotations: Pairs = Field(default_factory=dict)
    """Annotations of the pods."""
    node_selector: Pairs = Field(default_factory=dict)
    """Labels that a node must have."""
    affinity: Affinity | None = None
    """Affinity of the pods, besides what accelerator.architectures asks for."""
    tolerations: Annotated[tuple[Toleration, ...], Field(max_length=64)] = ()
    """Taints that the pods tolerate."""
    resources: Resources | None = None
    """Requests and limits of the serving container; the accelerator's own are added."""
    env: Annotated[tuple[EnvVar, ...], Field(max_length=128)] = ()
    """Environment variables of both containers."""
    volumes: Annotated[tuple[Volume, ...], Field(max_length=64)] = ()
    """More volumes."""
    volume_mounts: Annotated[tuple[VolumeMount, ...], Field(max_length=64)] = ()
    """Where the volumes are mounted, in both containers."""
    priority_class_name: ObjectName | None = None
    """The pods' priority class."""
    service_account_name: ObjectName | None = None
    """The pods' service account; one called NAME is made when absent."""
    runtime_class_name: ObjectName | None = None
    """The pods' runtime class."""

    rules: ClassVar = (
        Rule(
            "!has(self.env) || "
            "self.env.all(e, !(e.name in ['ROCR_VISIBLE_DEVICES', 'HIP_VISIBLE_DEVICES']))",
            "ROCR_VISIBLE_DEVICES and HIP_VISIBLE_DEVICES hide the device that the pod was given: "
            "remove them from env",
            lambda self: not any(e.name in VISIBLE_DEVICES for e in self.env),
        ),
        Rule(
            "(!has(self.labels) || self.labels.all(k, !k.startsWith('flatwake.dev/'))) && "
            "(!has(self.annotations) || "
            "self.annotations.all(k, !k.startsWith('flatwake.dev/')))",
            "labels and annotations that begin with flatwake.dev/ are the operator's: rename them",
            lambda self: _free_of_ours(self.labels) and _free_of_ours(self.annotations),
        ),
        Rule(
            "!has(self.volumes) || self.volumes.all(v, !v.name.startsWith('flatwake-'))",
            "volumes that begin with flatwake- are the operator's: rename them",
            lambda self: not any(v.name.startswith("flatwake-") for v in self.volumes),
        ),
    )


def _most_replicas(spec: "InferenceServerSpec") -> int:
    return spec.autoscaling.max_replicas if spec.autoscaling else spec.replicas


def _claim_is_shareable(spec: "InferenceServerSpec") -> bool:
    claim = spec.model.cache.claim
    shared = claim is None or AccessMode.READ_WRITE_MANY in claim.access_modes
    return shared or _most_replicas(spec) <= 1


class InferenceServerSpec(Part):
    """What is served, on what, and how it is reached."""

    image: Annotated[str, Field(min_length=1, max_length=1024)] | None = None
    """The service image; the operator's own for the backend when absent, which is kept until the
    spec changes."""
    image_pull_secrets: Annotated[tuple[ObjectReference, ...], Field(max_length=16)] = ()
    """Secrets for the image's registry."""
    model: Model
    """The model that is served."""
    accelerator: Accelerator = Accelerator()
    """What the model runs on."""
    replicas: Annotated[int, Field(ge=0, le=1000)] = 1
    """How many pods; not looked at while autoscaling is set."""
    autoscaling: Autoscaling | None = None
    """Let a HorizontalPodAutoscaler choose the number of pods."""
    engine: Engine = Engine()
    """How the engine runs the model."""
    limits: Limits = Limits()
    """What a pod refuses, and what it ends."""
    startup_timeout: Duration = defaults.STARTUP_TIMEOUT
    """The longest time without progress in fetching or loading. A load that makes progress is
    never ended."""
    rollout: Rollout = Rollout()
    """How pods are replaced by new ones."""
    access: Access = Access()
    """Who may call."""
    endpoint: Endpoint = Endpoint()
    """How the pods are reached."""
    template: Template = Template()
    """Kubernetes' own pieces, put into the pods as they are."""

    rules: ClassVar = (
        Rule(
            "duration(self.startupTimeout) >= duration('10s')",
            "startupTimeout must be at least 10s",
            lambda self: seconds(self.startup_timeout) >= 10,
        ),
        Rule(
            "!has(self.model.cache.claim) || 'ReadWriteMany' in self.model.cache.claim.accessModes"
            " || (has(self.autoscaling) ? self.autoscaling.maxReplicas : self.replicas) <= 1",
            "several replicas share the model's claim: set model.cache.claim.accessModes to "
            "[ReadWriteMany], or remove the claim so that each pod has its own cache",
            _claim_is_shareable,
        ),
        Rule(
            "!has(self.model.name) || !has(self.model.aliases) || "
            "!(self.model.name in self.model.aliases)",
            "model.name is among model.aliases: remove it there",
            lambda self: self.model.name not in self.model.aliases,
        ),
    )


class Metadata(Fragment):
    """The object's own metadata, of which the manifest looks at the name."""

    name: str
    namespace: str | None = None
    labels: dict[str, str] = Field(default_factory=dict)
    annotations: dict[str, str] = Field(default_factory=dict)
    generation: int = 0
    uid: str = ""


class Condition(Report):
    """One condition, in Kubernetes' own form."""

    type: Annotated[str, Field(max_length=64)]
    """What it is about: Accepted, ModelReady, AcceleratorReady, Progressing or Ready."""
    status: Annotated[str, Field(pattern="^(True|False|Unknown)$")]
    """True, False or Unknown."""
    reason: Annotated[str, Field(max_length=64)]
    """Why, in one word of a closed list."""
    message: Annotated[str, Field(max_length=32768)] = ""
    """Why, in words, and what to do."""
    last_transition_time: Annotated[str, Field(json_schema_extra={"format": "date-time"})]
    """When the status last changed."""
    observed_generation: int | None = None
    """The generation of the InferenceServer that this is about."""


class AcceleratorStatus(Report):
    """What the pods run on."""

    backend: str | None = None
    """The backend that was decided."""
    architecture: str | None = None
    """The GPU architecture that a pod found."""
    device: str | None = None
    """The device's name as a pod found it."""


class ServedModelStatus(Report):
    """The model as the pods have it."""

    name: str | None = None
    """The name that clients ask for."""
    bytes: int | None = None
    """The model's size in bytes."""
    percent: int | None = None
    """How much is fetched and loaded, by the pod that is furthest behind."""
    digest: str | None = None
    """The digest of the files that are served."""
    revision: str | None = None
    """The revision that the source's branch or tag stood for."""


class InferenceServerStatus(Report):
    """What the operator found; all of it can be found again."""

    observed_generation: int | None = None
    """The generation of the InferenceServer that this is about."""
    conditions: Annotated[
        tuple[Condition, ...],
        Field(
            max_length=16,
            json_schema_extra={
                "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["type"],
            },
        ),
    ] = ()
    """Accepted, ModelReady, AcceleratorReady, Progressing and Ready."""
    replicas: int | None = None
    """Pods that exist."""
    ready_replicas: int | None = None
    """Pods that answered a real token."""
    updated_replicas: int | None = None
    """Pods of the newest template."""
    selector: str | None = None
    """Selects the pods, for autoscalers."""
    endpoint: str | None = None
    """Where clients inside the cluster send requests."""
    image: str | None = None
    """The image that is pinned."""
    accelerator: AcceleratorStatus | None = None
    """What the pods run on."""
    model: ServedModelStatus | None = None
    """The model as the pods have it."""


class InferenceServer(Part):
    """A model served by pods behind one endpoint."""

    api_version: Annotated[str, Field(pattern=r"^flatwake\.dev/v1alpha1$")] = API_VERSION
    kind: Annotated[str, Field(pattern=r"^InferenceServer$")] = KIND
    metadata: Metadata
    spec: InferenceServerSpec
    """What is served, on what, and how it is reached."""
    status: InferenceServerStatus | None = None
    """What the operator found."""

    rules: ClassVar = (
        Rule(
            f"size(self.metadata.name) <= {NAME_MAX} && "
            f"self.metadata.name.matches('{NAME_PATTERN}')",
            f"metadata.name must be at most {NAME_MAX} characters of a-z, 0-9 and -, and begin "
            "with a letter, since Services and pods are named after it",
            lambda self: bool(
                len(self.metadata.name) <= NAME_MAX and re.match(NAME_PATTERN, self.metadata.name)
            ),
        ),
    )

    @property
    def name(self) -> str:
        return self.metadata.name

    @property
    def served_name(self) -> str:
        """The name that clients ask for."""
        return self.spec.model.name or self.metadata.name

    @classmethod
    def of(cls, data: dict[str, Any]) -> Self:
        """Parses an object as the API server gives it."""
        return cls.model_validate(data)
