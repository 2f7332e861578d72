"""Tiny random checkpoints in Hugging Face's layout, the same bytes for the same seed.

    python tests/service/support/tiny_models.py OUT      # all of them, a folder each

numpy alone makes them, so that an oracle elsewhere (transformers) can be run on the same bytes.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import (
    AddedToken,
    Regex,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
    trainers,
)

ENGLISH = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
REST = r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
# As the models' own tokenizer.json files spell them.
PATTERNS = {
    "llama-bpe": ENGLISH + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}" + REST,
    "qwen2": ENGLISH + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}" + REST,
    "qwen35": ENGLISH
    + r"|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*"
    + r"|\s*[\r\n]+|\s+(?!\S)|\s+",
    "tekken": r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*"
    r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+",
}
SPECIALS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
CHATML = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + "
    "message['content'] + '<|im_end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
CORPUS = [
    "The quick brown fox jumps over the lazy dog. She said: it's what we've always done, isn't it?",
    "def step(batch):\n    for row in batch.rows:\n        yield row.length + 1  # one more\n",
    "In 2024, 1,234,567 people walked 89 km; temperatures reached 36.6 °C (97.9 °F).",
    "Größe, naïve café, Ελλάδα, Москва, 東京は日本の首都です。 안녕하세요 🎉👩‍💻 नमस्ते",
    "   leading spaces\tand\ttabs\r\nwindows lines\n\n\nthree newlines   ",
    "HTTPServer_v2 camelCaseWords SCREAMING_SNAKE x+=1; y!=2 && z||w -> {[(<>)]} ... ?! :-)",
]


def train_byte_level(pre: str, vocabulary: int = 470) -> Tokenizer:
    """A byte-level BPE tokenizer, its pre-tokenizer built as the named models' files build it."""
    tokenizer = Tokenizer(models.BPE(ignore_merges=pre in ("llama-bpe", "tekken")))
    if pre in ("qwen2", "qwen35"):
        tokenizer.normalizer = normalizers.NFC()
    if pre == "smollm":
        cuts = [pre_tokenizers.Digits(individual_digits=True)]
        cuts.append(pre_tokenizers.ByteLevel(add_prefix_space=False))
    elif pre == "gpt-2":
        cuts = [pre_tokenizers.ByteLevel(add_prefix_space=False)]
    else:
        cuts = [pre_tokenizers.Split(Regex(PATTERNS[pre]), "isolated")]
        cuts.append(pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(cuts)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,
        special_tokens=[AddedToken(t, special=True, normalized=False) for t in SPECIALS],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(CORPUS, trainer)
    if pre in ("llama-bpe", "tekken"):
        bos = SPECIALS[0]
        tokenizer.post_processor = processors.TemplateProcessing(
            single=[bos, "$A"], special_tokens=[(bos, tokenizer.token_to_id(bos))]
        )
    return tokenizer


@dataclass(frozen=True)
class Tiny:
    """A checkpoint's shape. `config` has what only this architecture's config.json has."""

    architecture: str
    model_type: str
    pre: str
    tied: bool = False
    shards: int = 1
    dtype: str = "float32"
    bias: bool = False
    head_norm: bool = False
    hidden: int = 64
    ffn: int = 160
    layers: int = 2
    heads: int = 4
    kv_heads: int = 2
    head_dim: int = 16
    config: dict[str, Any] = field(default_factory=dict)


LLAMA3_SCALING = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
TINY = {
    "llama3": Tiny(
        "LlamaForCausalLM",
        "llama",
        "llama-bpe",
        shards=2,
        dtype="bfloat16",
        config={"rope_theta": 5e5, "rope_scaling": LLAMA3_SCALING, "rms_norm_eps": 1e-5},
    ),
    "llama3-tied": Tiny(
        "LlamaForCausalLM",
        "llama",
        "llama-bpe",
        tied=True,
        config={"rope_theta": 5e5, "rope_scaling": LLAMA3_SCALING, "rms_norm_eps": 1e-5},
    ),
    # Rows of 256 weights and more, as the K-quants want them.
    "llama3-wide": Tiny(
        "LlamaForCausalLM",
        "llama",
        "llama-bpe",
        dtype="float16",
        hidden=256,
        ffn=512,
        heads=8,
        kv_heads=2,
        head_dim=32,
        config={"rope_theta": 5e5, "rms_norm_eps": 1e-5},
    ),
    "smollm2": Tiny(
        "LlamaForCausalLM",
        "llama",
        "smollm",
        tied=True,
        dtype="bfloat16",
        hidden=48,
        heads=3,
        kv_heads=1,
        config={"rope_theta": 1e5, "rms_norm_eps": 1e-5},
    ),
    "mistral": Tiny(
        "MistralForCausalLM",
        "mistral",
        "tekken",
        shards=3,
        head_dim=32,
        config={"rope_theta": 1e6, "rms_norm_eps": 1e-5, "sliding_window": None},
    ),
    "qwen2": Tiny(
        "Qwen2ForCausalLM",
        "qwen2",
        "qwen2",
        tied=True,
        dtype="float16",
        bias=True,
        config={"rope_theta": 1e6, "rms_norm_eps": 1e-6, "use_sliding_window": False},
    ),
    "qwen3": Tiny(
        "Qwen3ForCausalLM",
        "qwen3",
        "qwen2",
        head_norm=True,
        head_dim=32,
        config={
            "rope_parameters": {"rope_type": "default", "rope_theta": 1e6},
            "rms_norm_eps": 1e-6,
            "attention_bias": False,
        },
    ),
}


def write_tiny(folder: Path, name: str, seed: int = 0) -> Path:
    """Write the checkpoint `name` of TINY into `folder` and return it."""
    tiny = TINY[name]
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer = train_byte_level(tiny.pre)
    tokenizer.save(str(folder / "tokenizer.json"))
    size = padded_vocabulary(tokenizer)
    end = tokenizer.token_to_id("<|im_end|>")
    _write_json(folder / "config.json", _config(tiny, size, end))
    _write_json(
        folder / "generation_config.json",
        {"eos_token_id": [end, tokenizer.token_to_id("<|endoftext|>")]},
    )
    _write_json(
        folder / "tokenizer_config.json",
        {
            "bos_token": "<|endoftext|>",
            "eos_token": "<|im_end|>",
            "tokenizer_class": "PreTrainedTokenizerFast",
            "chat_template": CHATML,
        },
    )
    tensors = dict(tiny_tensors(tiny, size, np.random.default_rng(seed)))
    _write_weights(folder, tensors, tiny)
    return folder


def padded_vocabulary(tokenizer: Tokenizer) -> int:
    """Rows of the embedding: more than there are tokens, as in real checkpoints."""
    return -(-tokenizer.get_vocab_size() // 32) * 32


def _config(tiny: Tiny, vocabulary: int, end: int) -> dict[str, Any]:
    return {
        "architectures": [tiny.architecture],
        "model_type": tiny.model_type,
        "hidden_size": tiny.hidden,
        "intermediate_size": tiny.ffn,
        "num_hidden_layers": tiny.layers,
        "num_attention_heads": tiny.heads,
        "num_key_value_heads": tiny.kv_heads,
        "head_dim": tiny.head_dim,
        "hidden_act": "silu",
        "max_position_embeddings": 512,
        "vocab_size": vocabulary,
        "bos_token_id": 0,
        "eos_token_id": end,
        "tie_word_embeddings": tiny.tied,
        "torch_dtype": tiny.dtype,
        **tiny.config,
    }


def tiny_tensors(
    tiny: Tiny, vocabulary: int, rng: np.random.Generator
) -> Iterator[tuple[str, np.ndarray]]:
    """Every tensor as float32; scaled so that activations stay near one."""

    def linear(rows: int, columns: int) -> np.ndarray:
        return rng.normal(0, 1.5 / np.sqrt(columns), (rows, columns)).astype(np.float32)

    def norm(size: int) -> np.ndarray:
        return rng.normal(1, 0.2, size).astype(np.float32)

    queries, values = tiny.heads * tiny.head_dim, tiny.kv_heads * tiny.head_dim
    yield "model.embed_tokens.weight", rng.normal(0, 0.5, (vocabulary, tiny.hidden)).astype("f4")
    for i in range(tiny.layers):
        layer = f"model.layers.{i}."
        yield layer + "input_layernorm.weight", norm(tiny.hidden)
        for part, rows in (("q", queries), ("k", values), ("v", values)):
            yield f"{layer}self_attn.{part}_proj.weight", linear(rows, tiny.hidden)
            if tiny.bias:
                yield f"{layer}self_attn.{part}_proj.bias", rng.normal(0, 0.5, rows).astype("f4")
        yield layer + "self_attn.o_proj.weight", linear(tiny.hidden, queries)
        if tiny.head_norm:
            yield layer + "self_attn.q_norm.weight", norm(tiny.head_dim)
            yield layer + "self_attn.k_norm.weight", norm(tiny.head_dim)
        yield layer + "post_attention_layernorm.weight", norm(tiny.hidden)
        yield layer + "mlp.gate_proj.weight", linear(tiny.ffn, tiny.hidden)
        yield layer + "mlp.up_proj.weight", linear(tiny.ffn, tiny.hidden)
        yield layer + "mlp.down_proj.weight", linear(tiny.hidden, tiny.ffn)
    yield "model.norm.weight", norm(tiny.hidden)
    if not tiny.tied:
        yield "lm_head.weight", linear(vocabulary, tiny.hidden)


def _write_weights(folder: Path, tensors: dict[str, np.ndarray], tiny: Tiny) -> None:
    if tiny.shards == 1:
        write_safetensors(folder / "model.safetensors", tensors, tiny.dtype)
        return
    names = list(tensors)
    weight_map: dict[str, str] = {}
    for shard, part in enumerate(np.array_split(np.arange(len(names)), tiny.shards), 1):
        file = f"model-{shard:05d}-of-{tiny.shards:05d}.safetensors"
        chosen = {names[i]: tensors[names[i]] for i in part}
        write_safetensors(folder / file, chosen, tiny.dtype)
        weight_map |= dict.fromkeys(chosen, file)
    index = {"metadata": {}, "weight_map": weight_map}
    _write_json(folder / "model.safetensors.index.json", index)


def write_safetensors(path: Path, tensors: dict[str, np.ndarray], dtype: str) -> None:
    """float32 arrays, stored as float32, float16 or bfloat16 (rounded half to even)."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    data = b""
    for name, array in tensors.items():
        stored = array.astype(np.float16) if dtype == "float16" else array
        if dtype == "bfloat16":
            stored = (rounded(array, dtype).view(np.uint32) >> 16).astype(np.uint16)
        code = {"bfloat16": "BF16", "float16": "F16", "float32": "F32"}[dtype]
        end = len(data) + stored.nbytes
        header[name] = {"dtype": code, "shape": array.shape, "data_offsets": [len(data), end]}
        data += stored.tobytes()
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)


def rounded(values: np.ndarray, dtype: str) -> np.ndarray:
    """float32 values that the dtype can hold (half to even)."""
    if dtype == "float16":
        return values.astype(np.float16).astype(np.float32)
    if dtype == "bfloat16":
        bits = values.view(np.uint32)
        return ((bits + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000).astype(np.uint32).view("f4")
    return values


def _write_json(path: Path, value: dict[str, Any]) -> None:
    path.write_text(json.dumps(value, indent=2) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    for name in TINY:
        print(write_tiny(arguments.out / name, name, arguments.seed))


if __name__ == "__main__":
    main()
