"""A model's weights and what its files say about them, whatever the files are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal

from flatwake_service.errors import CheckpointError, UnsupportedModel
from flatwake_service.weights.files import MappedFile
from flatwake_service.weights.formats import KNOWN, SUPPORTED, WEIGHTS, Format

if TYPE_CHECKING:
    from flatwake_service.weights.tensor import Tensor

Kind = Literal["gguf", "safetensors"]


@dataclass(frozen=True, slots=True)
class Entry:
    """Where a tensor lies in its file. `format` is None if its type has no code of ours."""

    name: str
    shape: tuple[int, ...]
    format: Format | None
    type_name: str
    file: MappedFile
    offset: int
    nbytes: int


class Checkpoint(Mapping[str, "Tensor"]):
    """A model's tensors by name, memory-mapped, with its configuration.

    - `kind`: "gguf" or "safetensors".
    - `path`: the GGUF file or the Hugging Face folder.
    - `architecture`: as the files call it: "llama" (GGUF), "LlamaForCausalLM" (config.json).
    - `config`: plain keys. Of a Hugging Face folder, config.json itself; of a GGUF file, the
      architecture's metadata without its prefix ("llama.block_count" is "block_count") .
    - `metadata`: all of a GGUF file's metadata; the safetensors headers' `__metadata__`.

    A tensor of a format that isn't supported is listed, and refused by name when it is asked for,
    so that a model can be served whose unused parts are stored in some other way.
    """

    def __init__(
        self,
        *,
        kind: Kind,
        path: Path,
        architecture: str,
        config: Mapping[str, Any],
        metadata: Mapping[str, Any],
        entries: Mapping[str, Entry],
    ) -> None:
        self.kind: Kind = kind
        self.path = path
        self.architecture = architecture
        self.config: Mapping[str, Any] = MappingProxyType(dict(config))
        self.metadata: Mapping[str, Any] = MappingProxyType(dict(metadata))
        self._entries = dict(entries)

    def __repr__(self) -> str:
        return f"Checkpoint({self.architecture}, {len(self)} tensors, {self.path})"

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __contains__(self, name: object) -> bool:
        return name in self._entries

    def __getitem__(self, name: str) -> Tensor:
        """The tensor of this name. Raises KeyError, or UnsupportedModel for its format."""
        entry = self._entries[name]
        if entry.format not in SUPPORTED:
            raise UnsupportedModel(
                f"{self.path.name}: {name} is stored as {entry.type_name}",
                cure=f"take a file whose tensors are of {KNOWN}",
            )
        assert entry.format is not None
        # numpy is an engine's to import: an API process reads headers alone.
        from flatwake_service.weights.tensor import read_tensor

        stored = entry.file.bytes[entry.offset : entry.offset + entry.nbytes]
        return read_tensor(entry.name, entry.shape, entry.format, stored)

    def require(self, name: str) -> Tensor:
        """The tensor of this name; a missing one is the checkpoint's fault, and says so."""
        if name not in self._entries:
            raise CheckpointError(
                f"{self.path.name} has no tensor {name} ({self.architecture})",
                cure="the file is incomplete or of another architecture than it says",
            )
        return self[name]

    @property
    def nbytes(self) -> int:
        """Bytes of all tensors."""
        return sum(entry.nbytes for entry in self._entries.values())

    def weight_formats(self) -> set[Format]:
        """Formats of the matrices; of those in another format than weights can have, none is used.

        Whether one that is used can be read is for whoever asks for it by name.
        """
        matrices = (e.format for e in self._entries.values() if len(e.shape) > 1)
        return {format_ for format_ in matrices if format_ in WEIGHTS}

    def formats(self) -> Counter[str]:
        """Bytes by format name, the largest first in `most_common()`."""
        totals: Counter[str] = Counter()
        for entry in self._entries.values():
            totals[entry.type_name] += entry.nbytes
        return totals
