"""`spec.model`: what is served, and where its files are kept."""

from typing import Annotated, ClassVar

from pydantic import AfterValidator, Field

from flatwake_service.manifest import defaults
from flatwake_service.manifest.choices import AccessMode
from flatwake_service.manifest.names import KeyReference, ModelName, ObjectName
from flatwake_service.manifest.part import Part, Rule
from flatwake_service.manifest.scalars import Quantity
from flatwake_service.manifest.sources import SOURCE_PATTERN, parse_source
from flatwake_service.manifest.units import quantity


def _source(text: str) -> str:
    parse_source(text)
    return text


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
