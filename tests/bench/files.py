"""Model files that the comparison needs: Q4_0 of the same weights, and a large random model."""

from __future__ import annotations

import math
import os
from pathlib import Path

import gguf
import numpy as np
from gguf import GGMLQuantizationType as Type

_OWN = ("GGUF.", "general.architecture", "general.file_type")
_FILE_TYPE_Q4_0 = 2
_HIDDEN, _FFN, _HEADS, _KV_HEADS, _VOCABULARY = 2048, 8192, 32, 8, 49152
"""Of the random model; a layer has 61 M weights."""


def q4_0_of(source: Path, folder: Path) -> Path:
    """A copy of a GGUF file whose Q4_1 tensors are Q4_0, from the dequantised weights."""
    target = folder / f"{source.stem.removesuffix('.Q4_1')}.Q4_0.gguf"
    if target.exists() and target.stat().st_mtime > source.stat().st_mtime:
        return target
    reader = gguf.GGUFReader(source)
    writer = _begin(reader, target)
    for tensor in reader.tensors:
        data, kind = tensor.data, tensor.tensor_type
        if kind == Type.Q4_1:
            kind = Type.Q4_0
            data = gguf.quants.quantize(gguf.quants.dequantize(data, Type.Q4_1), kind)
        writer.add_tensor(tensor.name, np.ascontiguousarray(data), raw_dtype=kind)
    _end(writer, target)
    return target


def random_of(tokens_from: Path, size: int, folder: Path) -> Path:
    """A llama of random Q4_1 weights of at least `size` bytes, with another file's vocabulary."""
    layer = 2 * _HIDDEN * _HIDDEN + 2 * _HIDDEN * _HIDDEN * _KV_HEADS // _HEADS
    layer = (layer + 3 * _HIDDEN * _FFN) * 20 // 32
    layers = math.ceil((size - _VOCABULARY * _HIDDEN * 20 // 32) / layer)
    target = folder / f"random-{layers}-layers.Q4_1.gguf"
    if target.exists():
        return target
    writer = _begin(gguf.GGUFReader(tokens_from), target, only="tokenizer.")
    writer.add_block_count(layers)
    writer.add_context_length(2048)
    writer.add_embedding_length(_HIDDEN)
    writer.add_feed_forward_length(_FFN)
    writer.add_head_count(_HEADS)
    writer.add_head_count_kv(_KV_HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(_HIDDEN // _HEADS)
    random = np.random.default_rng(20261130)

    def quants(name: str, rows: int, columns: int) -> None:
        data = random.integers(0, 256, (rows, columns // 32, 20), dtype=np.uint8)
        # Scales of about 1 / (8 √columns), minimums that centre the quants.
        scale = random.random((rows, columns // 32, 1)) / 8 / math.sqrt(columns)
        data[..., 0:2] = scale.astype(np.float16).view(np.uint8)
        data[..., 2:4] = (-7.5 * scale).astype(np.float16).view(np.uint8)
        writer.add_tensor(name, data.reshape(rows, -1), raw_dtype=Type.Q4_1)

    def ones(name: str) -> None:
        writer.add_tensor(name, np.ones(_HIDDEN, np.float32))

    kv = _HIDDEN * _KV_HEADS // _HEADS
    quants("token_embd.weight", _VOCABULARY, _HIDDEN)
    ones("output_norm.weight")
    for index in range(layers):
        for name, rows in (("q", _HIDDEN), ("k", kv), ("v", kv), ("output", _HIDDEN)):
            quants(f"blk.{index}.attn_{name}.weight", rows, _HIDDEN)
        for name in ("gate", "up"):
            quants(f"blk.{index}.ffn_{name}.weight", _FFN, _HIDDEN)
        quants(f"blk.{index}.ffn_down.weight", _HIDDEN, _FFN)
        ones(f"blk.{index}.attn_norm.weight")
        ones(f"blk.{index}.ffn_norm.weight")
    _end(writer, target)
    return target


def tensor_bytes(path: Path) -> int:
    return sum(int(tensor.n_bytes) for tensor in gguf.GGUFReader(path).tensors)


def _begin(reader: gguf.GGUFReader, target: Path, only: str = "") -> gguf.GGUFWriter:
    """A writer with a file's metadata: all of it, or what begins with `only`."""
    target.parent.mkdir(parents=True, exist_ok=True)
    writer = gguf.GGUFWriter(f"{target}.partial", "llama", use_temp_file=True)
    writer.add_file_type(_FILE_TYPE_Q4_0)
    for field in reader.fields.values():
        if field.name.startswith(_OWN) or not field.name.startswith(only):
            continue
        inner = field.types[1] if len(field.types) > 1 else None
        writer.add_key_value(field.name, field.contents(), field.types[0], inner)
    return writer


def _end(writer: gguf.GGUFWriter, target: Path) -> None:
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    os.replace(f"{target}.partial", target)
