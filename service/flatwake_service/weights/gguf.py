"""GGUF files (versions 2 and 3, little-endian), as GGML's `gguf.md` defines them.

The `gguf` library's own reader takes seconds for a vocabulary and trusts every number in the file,
so the header is read here: a file that lies is refused with one error, after a bounded amount of
work.
"""

from __future__ import annotations

import struct
from enum import IntEnum
from pathlib import Path
from typing import Any, Final

from flatwake_service.errors import CheckpointError, UnsupportedModel
from flatwake_service.weights.checkpoint import Checkpoint, Entry
from flatwake_service.weights.files import MappedFile, check_extents
from flatwake_service.weights.formats import Format, block_shape, tensor_bytes

MAGIC: Final = b"GGUF"
# Far above any real model (a vocabulary of 262,144 with merges has a million strings), low enough
# that a file can't make the reader take gigabytes or minutes.
MAX_STRINGS: Final = 1 << 22
MAX_ENTRIES: Final = 1 << 16
MAX_HEADER: Final = 1 << 28
MAX_DIMENSIONS: Final = 4


class Kind(IntEnum):
    """Types of metadata, by their numbers in the file."""

    UINT8 = 0
    INT8 = 1
    UINT16 = 2
    INT16 = 3
    UINT32 = 4
    INT32 = 5
    FLOAT32 = 6
    BOOL = 7
    STRING = 8
    ARRAY = 9
    UINT64 = 10
    INT64 = 11
    FLOAT64 = 12


_SCALARS: Final[dict[int, struct.Struct]] = {
    kind: struct.Struct(f"<{code}") for kind, code in zip(
        (
            Kind.UINT8, Kind.INT8, Kind.UINT16, Kind.INT16, Kind.UINT32, Kind.INT32, Kind.FLOAT32,
            Kind.BOOL, Kind.UINT64, Kind.INT64, Kind.FLOAT64,
        ),
        "BbHhIif?Qqd",
        strict=True,
    )
}  # fmt: skip
_U32: Final = struct.Struct("<I")
_U64: Final = struct.Struct("<Q")


class _Header:
    """A cursor over the header that never reads past it."""

    def __init__(self, file: MappedFile) -> None:
        self.path = file.path
        self.end = min(file.size, MAX_HEADER)
        self.bytes = file.bytes[: self.end]
        self.at = 0
        self.strings = 0

    def damaged(self, what: str) -> CheckpointError:
        return CheckpointError(f"{self.path} is damaged: {what}", cure="fetch it again")

    def take(self, count: int, what: str) -> int:
        """Move over `count` bytes and return where they begin."""
        if count > self.end - self.at:
            raise self.damaged(
                f"{what} at byte {self.at} wants {count} bytes, {self.end - self.at} are left"
            )
        start = self.at
        self.at += count
        return start

    def u32(self, what: str) -> int:
        return int(_U32.unpack_from(self.bytes, self.take(4, what))[0])

    def u64(self, what: str) -> int:
        return int(_U64.unpack_from(self.bytes, self.take(8, what))[0])

    def string(self, what: str) -> str:
        length = self.u64(what)
        start = self.take(length, what)
        try:
            return str(self.bytes[start : start + length], "utf-8")
        except UnicodeDecodeError as error:
            raise self.damaged(f"{what} at byte {start} isn't UTF-8") from error

    def value(self, key: str) -> Any:
        kind = self.u32(key)
        if kind == Kind.STRING:
            return self.string(key)
        if kind == Kind.ARRAY:
            return self.array(key)
        return self.numbers(key, kind, 1)[0]

    def array(self, key: str) -> Any:
        """A list of strings, or of numbers."""
        kind, count = self.u32(key), self.u64(key)
        if kind == Kind.ARRAY:
            raise self.damaged(f"{key} is an array of arrays, which no model uses")
        if kind != Kind.STRING:
            return self.numbers(key, kind, count)
        self.strings += count
        if self.strings > MAX_STRINGS or count * 8 > self.end - self.at:
            raise self.damaged(f"{key} claims {count} strings")
        return self.texts(key, count)

    def texts(self, key: str, count: int) -> list[str]:
        """`count` strings: as `string` reads them, in one loop, for vocabularies have many."""
        found: list[str] = []
        data, at, end, unpack = self.bytes, self.at, self.end, _U64.unpack_from
        for _ in range(count):
            start = at + 8
            try:
                at = start + unpack(data, at)[0]
                # Past the end, a slice is empty or short, and `string` says where and why.
                found.append(str(data[start:at], "utf-8") if at <= end else self.string(key))
            except (struct.error, UnicodeDecodeError):
                self.string(key)
                raise
            self.at = at
        return found

    def numbers(self, key: str, kind: int, count: int) -> list[Any]:
        if kind not in _SCALARS:
            raise self.damaged(f"{key} is of the unknown type {kind}")
        scalar = _SCALARS[kind]
        start = self.take(count * scalar.size, key)
        return [value for (value,) in scalar.iter_unpack(self.bytes[start : self.at])]


def read_gguf(path: Path) -> Checkpoint:
    """Map a GGUF file. Raises CheckpointError for one that is damaged, cut short, or lies."""
    file = MappedFile(path)
    header = _Header(file)
    tensors, entries = _counts(header)
    metadata: dict[str, Any] = {}
    for _ in range(entries):
        key = header.string("a metadata key")
        if not key:
            raise header.damaged("a metadata key is empty")
        if key in metadata:
            raise header.damaged(f"the key {key} appears twice")
        metadata[key] = header.value(key)
    split = metadata.get("split.count", 0)
    if isinstance(split, int) and split > 1:
        raise UnsupportedModel(
            f"{path} is one of {split} parts", cure="join them with `llama-gguf-split --merge`"
        )
    found = _entries(header, file, tensors, _alignment(header, metadata))
    architecture = metadata.get("general.architecture")
    if not isinstance(architecture, str) or not architecture:
        raise CheckpointError(f"{path} doesn't name its architecture (general.architecture)")
    prefix = architecture + "."
    config = {k.removeprefix(prefix): v for k, v in metadata.items() if k.startswith(prefix)}
    return Checkpoint(
        kind="gguf",
        path=path,
        architecture=architecture,
        config=config,
        metadata=metadata,
        entries=found,
    )


def _counts(header: _Header) -> tuple[int, int]:
    """(tensors, metadata entries), after the magic and the version."""
    magic = bytes(header.bytes[: header.take(4, "the magic") + 4])
    if magic != MAGIC:
        raise CheckpointError(f"{header.path} isn't a GGUF file (it begins with {magic!r})")
    version = header.u32("the version")
    if version not in (2, 3):
        swapped = int.from_bytes(version.to_bytes(4, "little"), "big")
        detail = "big-endian" if swapped in (2, 3) else f"GGUF version {version}"
        raise UnsupportedModel(
            f"{header.path} is {detail}", cure="convert it to GGUF 3, little-endian"
        )
    tensors, entries = header.u64("the tensor count"), header.u64("the metadata count")
    if tensors > MAX_ENTRIES or entries > MAX_ENTRIES:
        raise header.damaged(f"it claims {tensors} tensors and {entries} metadata entries")
    return tensors, entries


def _alignment(header: _Header, metadata: dict[str, Any]) -> int:
    alignment = metadata.get("general.alignment", 32)
    if (
        not isinstance(alignment, int)
        or not 8 <= alignment <= 1 << 20
        or alignment & (alignment - 1)
    ):
        raise header.damaged(f"general.alignment is {alignment}, not a power of two from 8 up")
    return alignment


def _entries(header: _Header, file: MappedFile, count: int, alignment: int) -> dict[str, Entry]:
    claims = [_claim(header) for _ in range(count)]
    start = -(-header.at // alignment) * alignment
    entries: dict[str, Entry] = {}
    for name, shape, format_, offset in claims:
        if name in entries:
            raise header.damaged(f"the tensor {name} appears twice")
        if offset % alignment:
            raise header.damaged(f"{name} isn't aligned to {alignment} bytes")
        nbytes = tensor_bytes(format_, shape)
        entries[name] = Entry(name, shape, format_, format_.name, file, start + offset, nbytes)
    extents = [(e.offset, e.nbytes, e.name) for e in entries.values()]
    check_extents(header.path, extents, start, file.size)
    return entries


def _claim(header: _Header) -> tuple[str, tuple[int, ...], Format, int]:
    """(name, shape, format, offset into the data) of the next tensor."""
    name = header.string("a tensor's name")
    dimensions = header.u32(name)
    if not 1 <= dimensions <= MAX_DIMENSIONS:
        raise header.damaged(f"{name} has {dimensions} dimensions")
    sizes = [header.u64(name) for _ in range(dimensions)]
    shape = tuple(reversed(sizes))  # GGML writes the fastest dimension first
    if 0 in shape:
        raise header.damaged(f"{name} has the shape {shape}")
    number = header.u32(name)
    try:
        format_ = Format(number)
        block = block_shape(format_)[0]
    except (ValueError, KeyError) as error:
        raise UnsupportedModel(f"{header.path}: {name} is of the unknown type {number}") from error
    if shape[-1] % block:
        raise header.damaged(
            f"{name} has rows of {shape[-1]}, no multiple of {format_.name}'s {block}"
        )
    return name, shape, format_, header.u64(name)
