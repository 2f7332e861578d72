"""GGUF files for tests: sound ones by the library's writer, and raw ones that may lie."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from gguf import GGMLQuantizationType as Format
from gguf import GGUFValueType as Kind

K_QUANTS = (Format.Q4_K, Format.Q5_K, Format.Q6_K)


def random_blocks(format_: Format, rows: int, columns: int, rng: np.random.Generator) -> np.ndarray:
    """Stored rows (rows, bytes) of a block format with small, finite weights."""
    weights, size = gguf.GGML_QUANT_SIZES[format_]
    raw = rng.integers(0, 256, (rows, columns // weights, size), dtype=np.uint8)
    scale = rng.uniform(1e-3, 4e-3, (rows, columns // weights, 2)).astype(np.float16)
    bytes_ = scale.view(np.uint8)
    match format_:
        case Format.Q4_K | Format.Q5_K | Format.Q4_1:
            raw[..., :4] = bytes_  # d, dmin (or m)
        case Format.Q6_K:
            raw[..., -2:] = bytes_[..., :2]
            scales = rng.integers(-20, 20, (*raw.shape[:2], 16), dtype=np.int8)
            raw[..., 192:208] = scales.view(np.uint8)
        case _:
            raw[..., :2] = bytes_[..., :2]
    return raw.reshape(rows, -1)


def quantize(values: np.ndarray, format_: Format, rng: np.random.Generator) -> np.ndarray:
    """Rows stored in a format: quantised where the library can, else random blocks of the shape."""
    if format_ == Format.BF16 or format_ not in K_QUANTS:
        return gguf.quants.quantize(np.ascontiguousarray(values, dtype=np.float32), format_)
    return random_blocks(format_, values.shape[0], values.shape[1], rng)


def write_gguf(
    path: Path,
    architecture: str,
    metadata: Mapping[str, Any],
    tensors: Mapping[str, tuple[np.ndarray, Format]],
) -> Path:
    """Write a sound file. `metadata` has full keys; `tensors` stored data with its format."""
    writer = gguf.GGUFWriter(path, architecture)
    for key, value in metadata.items():
        _add(writer, key, value)
    for name, (data, format_) in tensors.items():
        plain = format_ in (Format.F32, Format.F16)
        writer.add_tensor(name, data, raw_dtype=None if plain else format_)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _add(writer: gguf.GGUFWriter, key: str, value: Any) -> None:
    if isinstance(value, bool):
        writer.add_bool(key, value)
    elif isinstance(value, int):
        writer.add_uint32(key, value)
    elif isinstance(value, float):
        writer.add_float32(key, value)
    elif isinstance(value, str):
        writer.add_string(key, value)
    else:
        writer.add_array(key, list(value))


def raw_string(text: bytes | str, length: int | None = None) -> bytes:
    data = text.encode() if isinstance(text, str) else text
    return struct.pack("<Q", len(data) if length is None else length) + data


def raw_entry(key: str, kind: int, value: bytes) -> bytes:
    return raw_string(key) + struct.pack("<I", kind) + value


def raw_tensor(name: str, shape: Sequence[int], format_: int, offset: int) -> bytes:
    sizes = struct.pack(f"<I{len(shape)}Q", len(shape), *shape)
    return raw_string(name) + sizes + struct.pack("<IQ", format_, offset)


ARCHITECTURE = raw_entry("general.architecture", Kind.STRING, raw_string("llama"))


def raw_gguf(
    entries: Sequence[bytes] = (ARCHITECTURE,),
    tensors: Sequence[bytes] = (),
    data: bytes = b"",
    *,
    magic: bytes = b"GGUF",
    version: int = 3,
    tensor_count: int | None = None,
    entry_count: int | None = None,
) -> bytes:
    """A file's bytes, every number as told."""
    counts = (
        len(tensors) if tensor_count is None else tensor_count,
        len(entries) if entry_count is None else entry_count,
    )
    header = magic + struct.pack("<IQQ", version, *counts) + b"".join(entries) + b"".join(tensors)
    return header + b"\0" * (-len(header) % 32) + data
