"""Qwen3.5 hybrids: Gated DeltaNet layers with a full attention layer in between (text only)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from flatwake_kernels import ops
from flatwake_kernels.buffer import Buffer
from flatwake_kernels.declaration import LinearHandle
from flatwake_kernels.dtype import Dtype
from flatwake_kernels.plan import Plan

from flatwake_service.models.cache import CacheShape
from flatwake_service.models.decoder import Decoder, Shape
from flatwake_service.models.delta_net import DeltaNet
from flatwake_service.models.gated_attention import GatedAttention, queries_then_gates
from flatwake_service.models.hybrid_config import HybridConfig, read_config
from flatwake_service.models.layers import FeedForward, Head, Norm
from flatwake_service.models.load import Loader
from flatwake_service.models.rows import Rows
from flatwake_service.models.workspace import Workspace
from flatwake_service.weights import Checkpoint


@dataclass(frozen=True)
class Names:
    """How a kind of checkpoint calls the tensors; `layer` holds `{}`."""

    embedding: str
    norm: str
    head: str
    layer: str
    mixer_norm: str
    ffn_norm: str
    gate: str
    up: str
    down: str
    q: str
    k: str
    v: str
    output: str
    q_norm: str
    k_norm: str
    gdn_qkv: str
    gdn_z: str
    gdn_b: str
    gdn_a: str
    gdn_conv: str
    gdn_decay: str
    gdn_dt_bias: str
    gdn_norm: str
    gdn_output: str


def _huggingface(prefix: str) -> Names:
    gdn, attention = "linear_attn", "self_attn"
    return Names(
        embedding=f"{prefix}embed_tokens.weight", norm=f"{prefix}norm.weight",
        head="lm_head.weight", layer=f"{prefix}layers.{{}}.",
        mixer_norm="input_layernorm.weight", ffn_norm="post_attention_layernorm.weight",
        gate="mlp.gate_proj.weight", up="mlp.up_proj.weight", down="mlp.down_proj.weight",
        q=f"{attention}.q_proj.weight", k=f"{attention}.k_proj.weight",
        v=f"{attention}.v_proj.weight", output=f"{attention}.o_proj.weight",
        q_norm=f"{attention}.q_norm.weight", k_norm=f"{attention}.k_norm.weight",
        gdn_qkv=f"{gdn}.in_proj_qkv.weight", gdn_z=f"{gdn}.in_proj_z.weight",
        gdn_b=f"{gdn}.in_proj_b.weight", gdn_a=f"{gdn}.in_proj_a.weight",
        gdn_conv=f"{gdn}.conv1d.weight", gdn_decay=f"{gdn}.A_log", gdn_dt_bias=f"{gdn}.dt_bias",
        gdn_norm=f"{gdn}.norm.weight", gdn_output=f"{gdn}.out_proj.weight",
    )  # fmt: skip


GGUF = Names(
    embedding="token_embd.weight", norm="output_norm.weight", head="output.weight",
    layer="blk.{}.", mixer_norm="attn_norm.weight", ffn_norm="post_attention_norm.weight",
    gate="ffn_gate.weight", up="ffn_up.weight", down="ffn_down.weight",
    q="attn_q.weight", k="attn_k.weight", v="attn_v.weight", output="attn_output.weight",
    q_norm="attn_q_norm.weight", k_norm="attn_k_norm.weight",
    gdn_qkv="attn_qkv.weight", gdn_z="attn_gate.weight", gdn_b="ssm_beta.weight",
    gdn_a="ssm_alpha.weight", gdn_conv="ssm_conv1d.weight", gdn_decay="ssm_a",
    gdn_dt_bias="ssm_dt.bias", gdn_norm="ssm_norm.weight", gdn_output="ssm_out.weight",
)  # fmt: skip


@dataclass(frozen=True)
class Layer:
    norm: Norm
    mixer: GatedAttention | DeltaNet
    ffn: FeedForward


class Qwen35Decoder(Decoder):
    """A Qwen3.5 model: what mixes positions is attention in some layers, GDN in the others."""

    def __init__(self, loader: Loader, dtype: Dtype) -> None:
        self.config = config = read_config(loader.checkpoint)
        names = _names(loader.checkpoint)
        table = ([config.vocabulary], config.hidden)
        embedding = head = loader.linear([names.embedding], *table)
        weights = _Weights(loader, config, names)
        self._weights = [weights.layer(i) for i in range(len(config.full))]
        if not config.tied:
            head = loader.linear([names.head], *table)
        shape = Shape(
            vocabulary=config.vocabulary,
            context=config.context,
            hidden=config.hidden,
            cache=_cache_shape(config),
            rope=config.rope,
        )
        super().__init__(loader, dtype, shape, embedding, Head(weights.norm(names.norm), head))

    def _layers(
        self, plan: Plan, hidden: Buffer, rows: Rows, space: Workspace, *, prefill: bool
    ) -> None:
        normed = space.get("normed", *hidden.shape, dtype=self.dtype)
        for layer in self._weights:
            layer.norm.apply(plan, hidden, normed, rows)
            mixed = layer.mixer.apply(
                plan, normed, rows, space, self._cache, self._rope, prefill=prefill
            )
            plan.add(
                ops.Linear(
                    x=mixed, y=hidden, weight=layer.mixer.output, residual=hidden, live=rows.live
                )
            )
            layer.ffn.apply(plan, hidden, rows, space)


def _names(checkpoint: Checkpoint) -> Names:
    if checkpoint.kind == "gguf":
        return GGUF
    prefix = "model.language_model."
    return _huggingface(prefix if f"{prefix}norm.weight" in checkpoint else "model.")


def _cache_shape(config: HybridConfig) -> CacheShape:
    conv = (config.conv_channels, config.taps - 1)
    recurrent = (config.v_heads, config.key_dim, config.value_dim)
    return CacheShape(
        kv_layers=sum(config.full),
        kv_heads=config.kv_heads,
        head_dim=config.head_dim,
        states=(conv, recurrent) * config.full.count(False),
    )


class _Weights:
    """Layers out of a checkpoint, by the names that it uses."""

    def __init__(self, loader: Loader, config: HybridConfig, names: Names) -> None:
        self._loader = loader
        self._config = config
        self._names = names

    def layer(self, index: int) -> Layer:
        config, names = self._config, self._names
        prefix = names.layer.format(index)
        full = sum(config.full[:index])
        mixer = (
            self._attention(prefix, full)
            if config.full[index]
            else self._delta_net(prefix, 2 * (index - full))
        )
        ffn = FeedForward(
            norm=self.norm(prefix + names.ffn_norm),
            gate_up=self._linear(
                prefix, (names.gate, names.up), (config.ffn, config.ffn), config.hidden
            ),
            down=self._linear(prefix, (names.down,), (config.hidden,), config.ffn),
        )
        return Layer(self.norm(prefix + names.mixer_norm), mixer, ffn)

    def norm(self, name: str) -> Norm:
        config = self._config
        return Norm(self._loader.vector(name, config.hidden), config.eps, config.norm_offset)

    def _linear(
        self, prefix: str, names: tuple[str, ...], rows: tuple[int, ...], columns: int
    ) -> LinearHandle:
        return self._loader.linear([prefix + n for n in names], rows, columns)

    def _attention(self, prefix: str, layer: int) -> GatedAttention:
        config, names, loader = self._config, self._names, self._loader
        q_size, kv_size = config.heads * config.head_dim, config.kv_heads * config.head_dim
        return GatedAttention(
            qgkv=loader.linear(
                [prefix + n for n in (names.q, names.k, names.v)],
                (2 * q_size, kv_size, kv_size),
                config.hidden,
                permutations={0: queries_then_gates(config.heads, config.head_dim)},
            ),
            q_norm=loader.vector(prefix + names.q_norm, config.head_dim),
            k_norm=loader.vector(prefix + names.k_norm, config.head_dim),
            output=self._linear(prefix, (names.output,), (config.hidden,), q_size),
            heads=config.heads,
            kv_heads=config.kv_heads,
            head_dim=config.head_dim,
            eps=config.eps,
            norm_offset=config.norm_offset,
            layer=layer,
        )

    def _delta_net(self, prefix: str, state: int) -> DeltaNet:
        config, names, loader = self._config, self._names, self._loader
        value = config.v_heads * config.value_dim
        return DeltaNet(
            projection=self._linear(
                prefix,
                (names.gdn_qkv, names.gdn_z, names.gdn_b, names.gdn_a),
                (config.conv_channels, value, config.v_heads, config.v_heads),
                config.hidden,
            ),
            conv=self._conv(prefix + names.gdn_conv),
            negative_a=self._decay(prefix + names.gdn_decay),
            dt_bias=loader.vector(prefix + names.gdn_dt_bias, config.v_heads),
            norm=loader.vector(prefix + names.gdn_norm, config.value_dim),
            output=self._linear(prefix, (names.gdn_output,), (config.hidden,), value),
            k_heads=config.k_heads,
            v_heads=config.v_heads,
            key_dim=config.key_dim,
            value_dim=config.value_dim,
            eps=config.eps,
            tiled=config.tiled,
            state=state,
        )

    def _conv(self, name: str) -> Buffer:
        """[channels, taps]; Hugging Face keeps the convolution's middle dimension."""
        config = self._config
        squeezed = self._loader.checkpoint.kind == "gguf"
        middle = () if squeezed else (1,)
        values = self._loader.values(name, config.conv_channels, *middle, config.taps)
        return self._loader.upload(values.reshape(config.conv_channels, config.taps))

    def _decay(self, name: str) -> Buffer:
        """-exp(A_log), which GGUF stores as it is."""
        values = self._loader.values(name, self._config.v_heads)
        if self._loader.checkpoint.kind != "gguf":
            values = -np.exp(values)
        return self._loader.upload(values.astype(np.float32))
