"""A model's weights: mapped from its files, never copied. `dequantize` has them in float32.

checkpoint = open_checkpoint(Path("model.gguf"))   # or a Hugging Face folder
checkpoint.architecture, checkpoint.config, checkpoint.nbytes
tensor = checkpoint["blk.0.attn_q.weight"]         # shape, format, data, bytes
"""

from __future__ import annotations

from pathlib import Path

from flatwake_service.errors import CheckpointError, ModelMissing
from flatwake_service.weights.checkpoint import Checkpoint
from flatwake_service.weights.formats import FLOATS, QUANTIZED, Format, block_shape, row_bytes
from flatwake_service.weights.gguf import read_gguf
from flatwake_service.weights.safetensors import read_safetensors

__all__ = [
    "FLOATS",
    "QUANTIZED",
    "Checkpoint",
    "Format",
    "block_shape",
    "open_checkpoint",
    "row_bytes",
]


def open_checkpoint(path: Path | str) -> Checkpoint:
    """Open a GGUF file, a .safetensors file, or a folder with either.

    Raises CheckpointError if it is neither, damaged, cut short, or lies.
    """
    path = Path(path)
    if path.is_dir():
        found = sorted(path.glob("*.gguf"))
        if any(path.glob("*.safetensors")) or (path / "model.safetensors.index.json").exists():
            return read_safetensors(path)
        if len(found) == 1:
            return read_gguf(found[0])
        kind = CheckpointError if found else ModelMissing
        raise kind(
            f"{path} holds {len(found) or 'no'} GGUF files and no safetensors",
            cure="name one file" if found else "give a GGUF file or a Hugging Face folder",
        )
    if path.suffix == ".safetensors":
        return read_safetensors(path)
    return read_gguf(path)
