"""What a Qwen3.5 hybrid decoder needs to know, from either kind of checkpoint."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from flatwake_service.errors import UnsupportedModel
from flatwake_service.models.config import guarded, refuse_quantized
from flatwake_service.models.rope import Rope, scaled
from flatwake_service.weights import Checkpoint


@dataclass(frozen=True)
class HybridConfig:
    """Sizes in elements, `context` in tokens. `full[i]`: layer i is full attention, not GDN.

    `norm_offset` is what RMSNorm adds to its weights; `tiled` says that V head h uses K head
    h mod k_heads (GGUF's order) and not h // (v_heads / k_heads).
    """

    full: tuple[bool, ...]
    hidden: int
    ffn: int
    heads: int
    kv_heads: int
    head_dim: int
    k_heads: int
    v_heads: int
    key_dim: int
    value_dim: int
    taps: int
    vocabulary: int
    context: int
    eps: float
    rope: Rope
    tied: bool
    norm_offset: float
    tiled: bool

    @property
    def conv_channels(self) -> int:
        return 2 * self.k_heads * self.key_dim + self.v_heads * self.value_dim


def read_config(checkpoint: Checkpoint) -> HybridConfig:
    """The configuration of a Qwen3.5 checkpoint's text model.

    Raises:
        CheckpointError: a key is missing or has an impossible value.
        UnsupportedModel: it asks for something that the decoder doesn't do.
    """
    read = _from_gguf if checkpoint.kind == "gguf" else _from_huggingface
    return guarded(checkpoint, read)


def _from_huggingface(checkpoint: Checkpoint) -> HybridConfig:
    whole = checkpoint.config
    config: Mapping[str, Any] = whole.get("text_config") or whole
    refuse_quantized(checkpoint, whole, config)
    if config.get("hidden_act", "silu") != "silu":
        raise UnsupportedModel(f"activation {config['hidden_act']} is not supported")
    if config.get("attention_bias"):
        raise UnsupportedModel("attention biases are not supported in Qwen3.5")
    layers, head_dim = int(config["num_hidden_layers"]), int(config["head_dim"])
    context = int(config["max_position_embeddings"])
    rope = config.get("rope_parameters") or config.get("rope_scaling") or {}
    theta = float(rope.get("rope_theta") or config["rope_theta"])
    part = rope.get("partial_rotary_factor", config.get("partial_rotary_factor", 1.0))
    frequencies, scale = scaled(theta, int(head_dim * float(part)), rope, context)
    tied = config.get("tie_word_embeddings", whole.get("tie_word_embeddings", False))
    return HybridConfig(
        full=_layer_types(config, layers),
        hidden=int(config["hidden_size"]),
        ffn=int(config["intermediate_size"]),
        heads=int(config["num_attention_heads"]),
        kv_heads=int(config["num_key_value_heads"]),
        head_dim=head_dim,
        k_heads=int(config["linear_num_key_heads"]),
        v_heads=int(config["linear_num_value_heads"]),
        key_dim=int(config["linear_key_head_dim"]),
        value_dim=int(config["linear_value_head_dim"]),
        taps=int(config["linear_conv_kernel_dim"]),
        vocabulary=int(config["vocab_size"]),
        context=context,
        eps=float(config["rms_norm_eps"]),
        rope=Rope(frequencies, scale=scale),
        tied=bool(tied),
        norm_offset=1.0,
        tiled=False,
    )


def _layer_types(config: Mapping[str, Any], layers: int) -> tuple[bool, ...]:
    kinds = config.get("layer_types")
    if kinds is None:
        interval = int(config["full_attention_interval"])
        return tuple((i + 1) % interval == 0 for i in range(layers))
    unknown = set(kinds) - {"full_attention", "linear_attention"}
    if unknown or len(kinds) != layers:
        raise UnsupportedModel(f"layer types {sorted(unknown)} of {len(kinds)} are not supported")
    return tuple(kind == "full_attention" for kind in kinds)


def _from_gguf(checkpoint: Checkpoint) -> HybridConfig:
    config = checkpoint.config
    # Multi-token prediction layers follow the model's own and are no part of a step.
    layers = int(config["block_count"]) - int(config.get("nextn_predict_layers") or 0)
    interval = int(config["full_attention_interval"])
    context, head_dim = int(config["context_length"]), int(config["attention.key_length"])
    v_heads = int(config["ssm.time_step_rank"])
    frequencies, scale = scaled(
        float(config["rope.freq_base"]), int(config["rope.dimension_count"]), None, context
    )
    return HybridConfig(
        full=tuple((i + 1) % interval == 0 for i in range(layers)),
        hidden=int(config["embedding_length"]),
        ffn=int(config["feed_forward_length"]),
        heads=int(config["attention.head_count"]),
        kv_heads=int(config["attention.head_count_kv"]),
        head_dim=head_dim,
        k_heads=int(config["ssm.group_count"]),
        v_heads=v_heads,
        key_dim=int(config["ssm.state_size"]),
        value_dim=int(config["ssm.inner_size"]) // v_heads,
        taps=int(config["ssm.conv_kernel"]),
        vocabulary=checkpoint.require("token_embd.weight").shape[0],
        context=context,
        eps=float(config["attention.layer_norm_rms_epsilon"]),
        rope=Rope(frequencies, scale=scale),
        tied="output.weight" not in checkpoint,
        # The converter has added the one, and deals V heads out tile by tile.
        norm_offset=0.0,
        tiled=True,
    )
