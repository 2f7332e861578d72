"""Qwen3.5 checkpoints with random weights, of the public sizes: `python random_qwen3_5.py 4B OUT`.

Shapes, names and types are the published models'. Speed doesn't depend on the values, so a block of
them is written again and again; --fresh draws every one, for what looks at results
(clear_weights.py says from what).
"""

from __future__ import annotations

import argparse
import json
import shutil
import struct
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from clear_weights import carried_channels, draw
from numpy.typing import NDArray

BLOCK = 1 << 20
TOKENIZER = Path(__file__).parents[1] / "fixtures" / "hybrid" / "model"
SIZES: dict[str, dict[str, int | bool]] = {
    "0.8B": {"hidden_size": 1024, "intermediate_size": 3584, "num_hidden_layers": 24,
             "num_attention_heads": 8, "num_key_value_heads": 2, "linear_num_value_heads": 16,
             "tie_word_embeddings": True},
    "4B": {"hidden_size": 2560, "intermediate_size": 9216, "num_hidden_layers": 32,
           "num_attention_heads": 16, "num_key_value_heads": 4, "linear_num_value_heads": 32,
           "tie_word_embeddings": True},
    "9B": {"hidden_size": 4096, "intermediate_size": 12288, "num_hidden_layers": 32,
           "num_attention_heads": 16, "num_key_value_heads": 4, "linear_num_value_heads": 32,
           "tie_word_embeddings": False},
}  # fmt: skip
COMMON = {
    "architectures": ["Qwen3_5ForCausalLM"],
    "model_type": "qwen3_5_text",
    "vocab_size": 248320,
    "head_dim": 256,
    "linear_num_key_heads": 16,
    "linear_key_head_dim": 128,
    "linear_value_head_dim": 128,
    "linear_conv_kernel_dim": 4,
    "full_attention_interval": 4,
    "rms_norm_eps": 1e-6,
    "hidden_act": "silu",
    "max_position_embeddings": 262144,
    "rope_parameters": {"rope_type": "default", "rope_theta": 1e7, "partial_rotary_factor": 0.25},
}


def tensors(config: dict[str, int | bool]) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Names and shapes, in the checkpoint's order."""
    h, f = int(config["hidden_size"]), int(config["intermediate_size"])
    q, kv = 256 * int(config["num_attention_heads"]), 256 * int(config["num_key_value_heads"])
    v_heads = int(config["linear_num_value_heads"])
    value, channels = 128 * v_heads, 2 * 2048 + 128 * v_heads
    yield "model.embed_tokens.weight", (248320, h)
    for i in range(int(config["num_hidden_layers"])):
        p = f"model.layers.{i}."
        yield p + "input_layernorm.weight", (h,)
        if (i + 1) % 4 == 0:
            a = p + "self_attn."
            yield a + "q_proj.weight", (2 * q, h)
            yield a + "k_proj.weight", (kv, h)
            yield a + "v_proj.weight", (kv, h)
            yield a + "o_proj.weight", (h, q)
            yield a + "q_norm.weight", (256,)
            yield a + "k_norm.weight", (256,)
        else:
            a = p + "linear_attn."
            yield a + "in_proj_qkv.weight", (channels, h)
            yield a + "in_proj_z.weight", (value, h)
            yield a + "in_proj_b.weight", (v_heads, h)
            yield a + "in_proj_a.weight", (v_heads, h)
            yield a + "conv1d.weight", (channels, 1, 4)
            yield a + "A_log", (v_heads,)
            yield a + "dt_bias", (v_heads,)
            yield a + "norm.weight", (128,)
            yield a + "out_proj.weight", (h, value)
        yield p + "post_attention_layernorm.weight", (h,)
        yield p + "mlp.gate_proj.weight", (f, h)
        yield p + "mlp.up_proj.weight", (f, h)
        yield p + "mlp.down_proj.weight", (h, f)
    yield "model.norm.weight", (h,)
    if not config["tie_word_embeddings"]:
        yield "lm_head.weight", (248320, h)


def drawn(seed: tuple[int, ...]) -> bytes:
    """BLOCK bfloat16 values around 0."""
    return bfloat16(np.random.default_rng(seed).normal(0, 0.02, BLOCK).astype(np.float32))


def bfloat16(values: NDArray[np.float32]) -> bytes:
    """Cut off, not rounded."""
    return (values.view(np.uint32) >> 16).astype(np.uint16).tobytes()


def write(size: str, folder: Path, seed: int = 0, *, fresh: bool = False) -> Path:
    """Write the checkpoint of a size into `folder` and return it; bfloat16 throughout."""
    config = SIZES[size]
    if (folder / "model.safetensors").exists():
        return folder
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(COMMON | config))
    for name in ("tokenizer.json", "tokenizer_config.json"):  # so that it can be served
        if (TOKENIZER / name).exists():
            shutil.copy(TOKENIZER / name, folder / name)
    header, offset = {}, 0
    for name, shape in tensors(config):
        end = offset + 2 * int(np.prod(shape))
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [offset, end]}
        offset = end
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 64)
    part = folder / "model.part"
    with part.open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        if fresh:
            carried = carried_channels(int(config["hidden_size"]), seed)
            for number, (name, shape) in enumerate(tensors(config)):
                rng = np.random.default_rng((seed, number))
                file.writelines(map(bfloat16, draw(name, shape, rng, carried)))
        else:
            block = drawn((seed,))
            for start in range(0, offset, 2 * BLOCK):
                file.write(block[: min(2 * BLOCK, offset - start)])
    part.rename(folder / "model.safetensors")
    return folder


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("size", choices=SIZES)
    parser.add_argument("out", type=Path)
    parser.add_argument("--fresh", action="store_true")
    options = parser.parse_args()
    write(options.size, options.out, fresh=options.fresh)
