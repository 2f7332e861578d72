"""What a dense decoder needs to know, from either kind of checkpoint."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from flatwake_service.errors import CheckpointError, UnsupportedModel
from flatwake_service.models.rope import Rope, frequencies, scaled
from flatwake_service.weights import Checkpoint
from flatwake_service.weights.dequantize import dequantize

Config = TypeVar("Config")


@dataclass(frozen=True)
class DenseConfig:
    """Sizes in elements, `context` in tokens."""

    layers: int
    hidden: int
    ffn: int
    heads: int
    kv_heads: int
    head_dim: int
    vocabulary: int
    context: int
    eps: float
    rope: Rope
    tied: bool
    qk_norm: bool
    attention_bias: bool
    output_bias: bool


def read_config(checkpoint: Checkpoint) -> DenseConfig:
    """The configuration of a Llama, Mistral, Qwen2 or Qwen3 checkpoint.

    Raises:
        CheckpointError: a key is missing or has an impossible value.
        UnsupportedModel: it asks for something that the dense decoder doesn't do.
    """
    read = _from_gguf if checkpoint.kind == "gguf" else _from_huggingface
    return guarded(checkpoint, read)


def guarded(checkpoint: Checkpoint, read: Callable[[Checkpoint], Config]) -> Config:
    """`read(checkpoint)`, what it stumbles over said as the checkpoint's fault."""
    try:
        return read(checkpoint)
    except KeyError as error:
        raise CheckpointError(
            f"{checkpoint.path.name}: the configuration lacks {error.args[0]}"
        ) from error
    except (TypeError, ValueError, ZeroDivisionError) as error:
        raise CheckpointError(
            f"{checkpoint.path.name}: the configuration holds a value that cannot be: {error}"
        ) from error


def refuse_quantized(checkpoint: Checkpoint, *configs: Mapping[str, Any]) -> None:
    """Raises UnsupportedModel for weights in a quantiser's own layout, which look like others."""
    for config in configs:
        quantization = config.get("quantization_config")
        if quantization is None:
            continue
        method = quantization.get("quant_method") if isinstance(quantization, Mapping) else None
        raise UnsupportedModel(
            f"{checkpoint.path.name}: config.json has a quantization_config (quant_method "
            f"{method or 'not stated'}), whose layout of weights isn't supported",
            cure="take the model's unquantised repository, or a GGUF file of it",
        )


def _from_huggingface(checkpoint: Checkpoint) -> DenseConfig:
    config = checkpoint.config
    refuse_quantized(checkpoint, config)
    if config.get("hidden_act", "silu") != "silu":
        raise UnsupportedModel(f"activation {config['hidden_act']} is not supported")
    if config.get("mlp_bias"):
        raise UnsupportedModel("biases in the feed-forward layers are not supported")
    heads, hidden = int(config["num_attention_heads"]), int(config["hidden_size"])
    head_dim = int(config.get("head_dim") or hidden // heads)
    trained = int(config["max_position_embeddings"])
    # transformers 5 writes rope_parameters; earlier versions rope_theta and rope_scaling.
    rope = config.get("rope_parameters") or config.get("rope_scaling")
    theta = float((rope or {}).get("rope_theta") or config.get("rope_theta") or 10000.0)
    values, scale = scaled(theta, head_dim, rope, trained)
    qwen2 = checkpoint.architecture == "Qwen2ForCausalLM"
    return DenseConfig(
        layers=int(config["num_hidden_layers"]),
        hidden=hidden,
        ffn=int(config["intermediate_size"]),
        heads=heads,
        kv_heads=int(config.get("num_key_value_heads") or heads),
        head_dim=head_dim,
        vocabulary=int(config["vocab_size"]),
        context=_context(checkpoint, trained),
        eps=float(config["rms_norm_eps"]),
        rope=Rope(values, scale=scale),
        tied=bool(config.get("tie_word_embeddings")),
        qk_norm=checkpoint.architecture == "Qwen3ForCausalLM",
        attention_bias=qwen2 or bool(config.get("attention_bias")),
        output_bias=not qwen2 and bool(config.get("attention_bias")),
    )


def _context(checkpoint: Checkpoint, trained: int) -> int:
    """Sliding attention equals full attention up to its window; further is not served.

    As in transformers: Mistral slides unless its window is null, Qwen only if it is told to, and
    Llama never.
    """
    config = checkpoint.config
    slides = {"MistralForCausalLM": True, "LlamaForCausalLM": False}
    window = config.get("sliding_window", 4096)
    if window is None or not slides.get(
        checkpoint.architecture, bool(config.get("use_sliding_window"))
    ):
        return trained
    return min(trained, int(window))


def _from_gguf(checkpoint: Checkpoint) -> DenseConfig:
    config = checkpoint.config
    heads, hidden = int(config["attention.head_count"]), int(config["embedding_length"])
    head_dim = int(config.get("attention.key_length") or hidden // heads)
    if int(config.get("attention.value_length") or head_dim) != head_dim:
        raise UnsupportedModel("keys and values of different sizes are not supported")
    if int(config.get("expert_count") or 0):
        raise UnsupportedModel("mixture of experts is not supported")
    trained = int(config["context_length"])
    bias = "blk.0.attn_q.bias" in checkpoint
    return DenseConfig(
        layers=int(config["block_count"]),
        hidden=hidden,
        ffn=int(config["feed_forward_length"]),
        heads=heads,
        kv_heads=int(config.get("attention.head_count_kv") or heads),
        head_dim=head_dim,
        vocabulary=checkpoint.require("token_embd.weight").shape[0],
        context=trained,
        eps=float(config["attention.layer_norm_rms_epsilon"]),
        rope=_gguf_rope(checkpoint, head_dim, trained),
        tied="output.weight" not in checkpoint,
        qk_norm="blk.0.attn_q_norm.weight" in checkpoint,
        attention_bias=bias,
        output_bias="blk.0.attn_output.bias" in checkpoint,
    )


def _gguf_rope(checkpoint: Checkpoint, head_dim: int, trained: int) -> Rope:
    config = checkpoint.config
    theta = float(config.get("rope.freq_base") or 10000.0)
    dims = int(config.get("rope.dimension_count") or head_dim)
    kind = str(config.get("rope.scaling.type") or "none")
    scaling = None
    if kind != "none":
        scaling = {
            "rope_type": kind,
            "factor": config.get("rope.scaling.factor") or 1.0,
            "original_max_position_embeddings": config.get("rope.scaling.original_context_length"),
        }
    values, scale = scaled(theta, dims, scaling, trained)
    if "rope_freqs.weight" in checkpoint:
        # Llama 3's scaling, written by the converter as divisors.
        values = frequencies(theta, dims) / dequantize(checkpoint["rope_freqs.weight"])
    # The converter reorders q and k of this architecture for adjacent pairs.
    return Rope(values, adjacent_pairs=checkpoint.architecture == "llama", scale=scale)
