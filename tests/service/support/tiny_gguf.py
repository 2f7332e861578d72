"""The tiny checkpoints as GGUF files, the way llama.cpp's conversion writes them.

python tests/service/support/tiny_gguf.py OUT     # every model in F32, the wide one quantised
"""

from __future__ import annotations

import argparse
import re
from pathlib import Path
from typing import Any

import numpy as np
from gguf import GGMLQuantizationType as Format
from gguf_files import quantize, write_gguf
from gguf_tokenizers import gguf_metadata
from tiny_models import (
    CHATML,
    TINY,
    Tiny,
    padded_vocabulary,
    rounded,
    tiny_tensors,
    train_byte_level,
)

QUANTS = (
    Format.Q4_0,
    Format.Q4_1,
    Format.Q8_0,
    Format.Q4_K,
    Format.Q5_K,
    Format.Q6_K,
    Format.F16,
    Format.BF16,
)
NAMES = {
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "lm_head": "output",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}


def write_tiny_gguf(
    path: Path, name: str, format_: Format = Format.F32, *, seed: int = 0, mixed: bool = False
) -> Path:
    """Write TINY[name] with its matrices in `format_` (vectors stay F32).

    The values are the folder's own, rounded to its dtype first. `mixed`: v and down in Q6_K, as
    Q4_K_M files have them.
    """
    tiny = TINY[name]
    trained = train_byte_level(tiny.pre)
    size = padded_vocabulary(trained)
    metadata = _metadata(tiny, size)
    metadata |= gguf_metadata(trained, tiny.pre, padding=size - trained.get_vocab_size())
    metadata["tokenizer.chat_template"] = CHATML
    tensors: dict[str, tuple[np.ndarray, Format]] = {}
    for full, values in tiny_tensors(tiny, size, np.random.default_rng(seed)):
        new, values = _rename(full), rounded(values, tiny.dtype)
        if tiny.model_type in ("llama", "mistral"):
            values = _interleave(new, values, tiny)
        kind = Format.F32 if values.ndim == 1 else format_
        if mixed and re.search(r"attn_v|ffn_down", new):
            kind = Format.Q6_K
        tensors[new] = (values if kind == Format.F32 else quantize(values, kind), kind)
    if "rope_scaling" in tiny.config:
        tensors["rope_freqs.weight"] = (_rope_factors(tiny), Format.F32)
    return write_gguf(path, _architecture(tiny), metadata, tensors)


def _architecture(tiny: Tiny) -> str:
    return "llama" if tiny.model_type == "mistral" else tiny.model_type


def _metadata(tiny: Tiny, vocabulary: int) -> dict[str, Any]:
    theta = tiny.config.get("rope_theta") or tiny.config["rope_parameters"]["rope_theta"]
    values = {
        "block_count": tiny.layers,
        "context_length": 512,
        "embedding_length": tiny.hidden,
        "feed_forward_length": tiny.ffn,
        "attention.head_count": tiny.heads,
        "attention.head_count_kv": tiny.kv_heads,
        "attention.key_length": tiny.head_dim,
        "attention.value_length": tiny.head_dim,
        "attention.layer_norm_rms_epsilon": float(tiny.config["rms_norm_eps"]),
        "rope.freq_base": float(theta),
        "rope.dimension_count": tiny.head_dim,
        "vocab_size": vocabulary,
    }
    return {f"{_architecture(tiny)}.{key}": value for key, value in values.items()}


def _rename(full: str) -> str:
    stem, kind = full.rsplit(".", 1)
    layer = re.fullmatch(r"model\.layers\.(\d+)\.(.*)", stem)
    return f"blk.{layer[1]}.{NAMES[layer[2]]}.{kind}" if layer else f"{NAMES[stem]}.{kind}"


def _interleave(name: str, values: np.ndarray, tiny: Tiny) -> np.ndarray:
    """q and k for rotary embedding over adjacent pairs."""
    if not re.search(r"attn_[qk]\.", name):
        return values
    heads = tiny.heads if "attn_q." in name else tiny.kv_heads
    halves = values.reshape(heads, 2, tiny.head_dim // 2, *values.shape[1:])
    return np.ascontiguousarray(halves.swapaxes(1, 2).reshape(values.shape))


def _rope_factors(tiny: Tiny) -> np.ndarray:
    """Llama 3's scaling, as what each frequency is divided by."""
    scaling = tiny.config["rope_scaling"]
    frequency = tiny.config["rope_theta"] ** (-np.arange(0, tiny.head_dim, 2) / tiny.head_dim)
    wavelength = 2 * np.pi / frequency
    original = scaling["original_max_position_embeddings"]
    low, high, factor = (scaling[key] for key in ("low_freq_factor", "high_freq_factor", "factor"))
    smooth = (original / wavelength - low) / (high - low)
    between = 1 / ((1 - smooth) / factor + smooth)
    factors = np.where(wavelength > original / low, factor, between)
    return np.where(wavelength < original / high, 1.0, factors).astype(np.float32)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    out = parser.parse_args().out
    out.mkdir(parents=True, exist_ok=True)
    for name in TINY:
        print(write_tiny_gguf(out / f"{name}.F32.gguf", name))
    for format_ in QUANTS:
        path = out / f"llama3-wide.{format_.name}.gguf"
        print(write_tiny_gguf(path, "llama3-wide", format_))
    path = out / "llama3-wide.Q4_K_M.gguf"
    print(write_tiny_gguf(path, "llama3-wide", Format.Q4_K, mixed=True))


if __name__ == "__main__":
    main()
