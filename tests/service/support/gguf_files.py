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


def quantize(values: np.ndarray, format_: Format) -> np.ndarray:
    """Rows of float32 in a format: by the library, or (K-quants) by the plainest rounding."""
    values = np.ascontiguousarray(values, dtype=np.float32)
    if format_ in (Format.Q4_K, Format.Q5_K):
        return _quantize_k(values, 4 if format_ == Format.Q4_K else 5)
    if format_ == Format.Q6_K:
        return _quantize_6(values)
    return gguf.quants.quantize(values, format_)


def _quantize_k(values: np.ndarray, bits: int) -> np.ndarray:
    """Q4_K, Q5_K: eight sub-blocks of 32, each with a 6-bit scale and a 6-bit minimum."""
    x = values.reshape(-1, 8, 32)
    minimum = np.maximum(0, -x.min(-1))
    scale = (x.max(-1) + minimum) / (2**bits - 1)
    d = np.maximum(scale.max(-1, keepdims=True) / 63, 1e-7).astype(np.float16)
    dmin = np.maximum(minimum.max(-1, keepdims=True) / 63, 1e-7).astype(np.float16)
    sc = np.clip(np.rint(scale / d), 0, 63).astype(np.uint8)
    m = np.clip(np.rint(minimum / dmin), 0, 63).astype(np.uint8)
    step, low = (d * sc.astype(np.float32))[..., None], (dmin * m.astype(np.float32))[..., None]
    q = np.rint((x + low) / np.where(step > 0, step, 1)).clip(0, 2**bits - 1).astype(np.uint8)
    packed = [
        (sc[:, :4] & 63) | (sc[:, 4:] >> 4 << 6),
        (m[:, :4] & 63) | (m[:, 4:] >> 4 << 6),
        (sc[:, 4:] & 15) | (m[:, 4:] & 15) << 4,
    ]
    nibbles = (q[:, 0::2] & 15) | (q[:, 1::2] & 15) << 4
    high = (q >> 4) << np.arange(8, dtype=np.uint8)[None, :, None]
    parts = [d.view(np.uint8), dmin.view(np.uint8), *packed]
    parts += [np.bitwise_or.reduce(high, axis=1)] if bits == 5 else []
    parts.append(nibbles.reshape(len(x), -1))
    return np.concatenate(parts, axis=-1).reshape(len(values), -1)


def _quantize_6(values: np.ndarray) -> np.ndarray:
    """Q6_K: sixteen sub-blocks of 16 with an 8-bit scale."""
    x = values.reshape(-1, 16, 16)
    scale = np.abs(x).max(-1) / 31
    d = np.maximum(scale.max(-1, keepdims=True) / 127, 1e-7).astype(np.float16)
    sc = np.clip(np.rint(scale / d), 1, 127).astype(np.int8)
    step = (d * sc.astype(np.float32))[..., None]
    q = (np.rint(x / step).clip(-32, 31) + 32).astype(np.uint8).reshape(-1, 2, 4, 32)
    low = (q[:, :, :2] & 15) | (q[:, :, 2:] & 15) << 4
    shift = np.arange(0, 8, 2, dtype=np.uint8)[None, None, :, None]
    high = np.bitwise_or.reduce((q >> 4) << shift, axis=2)
    parts = [low.reshape(len(x), -1), high.reshape(len(x), -1), sc.view(np.uint8), d.view(np.uint8)]
    return np.concatenate(parts, axis=-1).reshape(len(values), -1)


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
