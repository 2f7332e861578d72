"""Hugging Face folders: config.json and safetensors files, one or many.

The header is read here and not by the library, which can't map a BF16 tensor without torch.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from math import prod
from pathlib import Path
from typing import Any, Final

from flatwake_service.errors import CheckpointError
from flatwake_service.weights.checkpoint import Checkpoint, Entry
from flatwake_service.weights.files import MappedFile, check_extents
from flatwake_service.weights.formats import Format

INDEX: Final = "model.safetensors.index.json"
SINGLE: Final = "model.safetensors"
MAX_HEADER: Final = 32 << 20  # bytes of JSON; the largest models' shards have under one
MAX_DIMENSIONS: Final = 8

_TYPES: Final[dict[str, tuple[Format | None, int]]] = {
    "F64": (Format.F64, 8),
    "F32": (Format.F32, 4),
    "F16": (Format.F16, 2),
    "BF16": (Format.BF16, 2),
    "I64": (Format.I64, 8),
    "I32": (Format.I32, 4),
    "I16": (Format.I16, 2),
    "I8": (Format.I8, 1),
    "U64": (None, 8),
    "U32": (None, 4),
    "U16": (None, 2),
    "U8": (None, 1),
    "BOOL": (None, 1),
    "F8_E4M3": (None, 1),
    "F8_E5M2": (None, 1),
    "F8_E8M0": (None, 1),
}


def read_safetensors(path: Path) -> Checkpoint:
    """Map a Hugging Face folder, or the folder that a .safetensors file stands in.

    Raises CheckpointError for files that are missing, damaged, cut short, or lie.
    """
    folder = path if path.is_dir() else path.parent
    config = read_json(folder / "config.json")
    architectures = config.get("architectures")
    if (
        not isinstance(architectures, list)
        or not architectures
        or not isinstance(architectures[0], str)
    ):
        raise CheckpointError(
            f"{folder / 'config.json'} doesn't name its architecture (architectures)"
        )
    entries: dict[str, Entry] = {}
    metadata: dict[str, Any] = {}
    for file, names in _files(folder, path).items():
        found, extra = _read_file(folder / file)
        metadata.update(extra)
        for name in found if names is None else names:
            if name not in found:
                raise CheckpointError(
                    f"{folder / INDEX} says that {name} is in {file}, which lacks it"
                )
            entries[name] = found[name]
    return Checkpoint(
        kind="safetensors",
        path=folder,
        architecture=architectures[0],
        config=config,
        metadata=metadata,
        entries=entries,
    )


def read_json(path: Path) -> dict[str, Any]:
    """A JSON file that holds an object."""
    try:
        if path.stat().st_size > MAX_HEADER:
            raise CheckpointError(f"{path} is larger than {MAX_HEADER} bytes")
        return _parse(path, path.read_bytes())
    except OSError as error:
        raise CheckpointError(f"{path}: {error.strerror or error}") from error


def _parse(path: Path, text: bytes) -> dict[str, Any]:
    try:
        value = json.loads(text, object_pairs_hook=_unique)
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{path} is damaged: {error}", cure="fetch it again") from error
    if not isinstance(value, dict):
        raise CheckpointError(f"{path} is damaged: no JSON object")
    return value


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        raise ValueError("a key appears twice")
    return result


def _files(folder: Path, path: Path) -> Mapping[str, list[str] | None]:
    """The files to read, each with the tensors wanted of it (None: all)."""
    if path.is_file():
        return {path.name: None}
    if (folder / INDEX).exists():
        return _index(folder / INDEX)
    if (folder / SINGLE).exists():
        return {SINGLE: None}
    names = sorted(file.name for file in folder.glob("*.safetensors"))
    if len(names) != 1:
        found = ", ".join(names) or "none"
        raise CheckpointError(
            f"{folder} has no {INDEX} and no {SINGLE} (safetensors files: {found})",
            cure="fetch the whole folder",
        )
    return {names[0]: None}


def _index(path: Path) -> dict[str, list[str] | None]:
    weight_map = read_json(path).get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise CheckpointError(f"{path} has no weight_map")
    files: dict[str, list[str] | None] = {}
    for name, file in weight_map.items():
        if not isinstance(file, str) or Path(file).name != file or file in ("", ".", ".."):
            raise CheckpointError(f"{path} names {file!r}, which isn't a file of its folder")
        names = files.setdefault(file, [])
        assert names is not None
        names.append(name)
    return files


def _read_file(path: Path) -> tuple[dict[str, Entry], dict[str, Any]]:
    """A file's entries by name, and its `__metadata__`."""
    file = MappedFile(path)
    length = int.from_bytes(file.bytes[:8], "little")
    if file.size < 8 or length > file.size - 8 or length > MAX_HEADER:
        raise CheckpointError(
            f"{path} is damaged: its header claims {length} bytes, the file has {file.size}",
            cure="fetch it again",
        )
    start = 8 + length
    header = _parse(path, bytes(file.bytes[8:start]))
    metadata = header.pop("__metadata__", {})
    if not isinstance(metadata, dict):
        raise CheckpointError(f"{path} is damaged: __metadata__ is no object")
    entries = {name: _entry(file, start, name, claim) for name, claim in header.items()}
    check_extents(path, [(e.offset, e.nbytes, e.name) for e in entries.values()], start, file.size)
    return entries, metadata


def _entry(file: MappedFile, start: int, name: str, claim: Any) -> Entry:
    match claim:
        case {"dtype": str(dtype), "shape": list(sizes), "data_offsets": [int(begin), int(end)]}:
            pass
        case _:
            raise _lie(file.path, name, "its header entry has another form")
    if len(sizes) > MAX_DIMENSIONS or not all(
        type(size) is int and 0 <= size < 1 << 48 for size in sizes
    ):
        raise _lie(file.path, name, f"its shape is {str(sizes)[:200]}")
    if dtype not in _TYPES:
        raise _lie(file.path, name, f"its type {dtype[:40]} is unknown")
    format_, width = _TYPES[dtype]
    nbytes = prod(sizes) * width
    if not 0 <= begin <= end or end - begin != nbytes:
        raise _lie(file.path, name, f"{dtype} {sizes} takes {nbytes} bytes, not {begin} to {end}")
    return Entry(name, tuple(sizes), format_, dtype, file, start + begin, nbytes)


def _lie(path: Path, name: str, what: str) -> CheckpointError:
    return CheckpointError(f"{path} is damaged: {name}: {what}", cure="fetch it again")
