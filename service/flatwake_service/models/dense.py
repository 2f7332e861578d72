"""Dense decoders: Llama, SmolLM2, Mistral, Qwen2 and Qwen3."""

from __future__ import annotations

from dataclasses import dataclass

from flatwake_kernels import ops
from flatwake_kernels.buffer import Buffer
from flatwake_kernels.declaration import LinearHandle
from flatwake_kernels.dtype import Dtype
from flatwake_kernels.plan import Plan

from flatwake_service.models.cache import CacheShape
from flatwake_service.models.config import DenseConfig, read_config
from flatwake_service.models.decoder import Decoder, Shape
from flatwake_service.models.layers import FeedForward, Head, Norm, attend
from flatwake_service.models.load import Loader
from flatwake_service.models.rows import Rows
from flatwake_service.models.workspace import Workspace


@dataclass(frozen=True)
class Names:
    """How a kind of checkpoint calls a dense model's tensors; `layer` holds `{}`."""

    embedding: str
    norm: str
    head: str
    layer: str
    attention_norm: str
    q: str
    k: str
    v: str
    output: str
    q_norm: str
    k_norm: str
    ffn_norm: str
    gate: str
    up: str
    down: str


HUGGINGFACE = Names(
    embedding="model.embed_tokens", norm="model.norm", head="lm_head", layer="model.layers.{}.",
    attention_norm="input_layernorm", q="self_attn.q_proj", k="self_attn.k_proj",
    v="self_attn.v_proj", output="self_attn.o_proj", q_norm="self_attn.q_norm",
    k_norm="self_attn.k_norm", ffn_norm="post_attention_layernorm", gate="mlp.gate_proj",
    up="mlp.up_proj", down="mlp.down_proj",
)  # fmt: skip
GGUF = Names(
    embedding="token_embd", norm="output_norm", head="output", layer="blk.{}.",
    attention_norm="attn_norm", q="attn_q", k="attn_k", v="attn_v", output="attn_output",
    q_norm="attn_q_norm", k_norm="attn_k_norm", ffn_norm="ffn_norm", gate="ffn_gate",
    up="ffn_up", down="ffn_down",
)  # fmt: skip


@dataclass(frozen=True)
class Layer:
    norm: Norm
    qkv: LinearHandle
    qkv_bias: Buffer | None
    q_norm: Buffer | None
    k_norm: Buffer | None
    output: LinearHandle
    output_bias: Buffer | None
    ffn: FeedForward


class DenseDecoder(Decoder):
    """A dense model: attention and feed-forward in every layer."""

    def __init__(self, loader: Loader, dtype: Dtype) -> None:
        self.config = config = read_config(loader.checkpoint)
        names = GGUF if loader.checkpoint.kind == "gguf" else HUGGINGFACE
        table = ([config.vocabulary], config.hidden)
        embedding = head = loader.linear([f"{names.embedding}.weight"], *table)
        self._weights = [_load_layer(loader, config, names, i) for i in range(config.layers)]
        if not config.tied:
            head = loader.linear([f"{names.head}.weight"], *table)
        norm = loader.vector(f"{names.norm}.weight", config.hidden)
        shape = Shape(
            vocabulary=config.vocabulary,
            context=config.context,
            hidden=config.hidden,
            cache=CacheShape(config.layers, config.kv_heads, config.head_dim),
            rope=config.rope,
        )
        super().__init__(loader, dtype, shape, embedding, Head(Norm(norm, config.eps), head))

    def _layers(
        self, plan: Plan, hidden: Buffer, rows: Rows, space: Workspace, *, prefill: bool
    ) -> None:
        normed = space.get("normed", *hidden.shape, dtype=self.dtype)
        for index, layer in enumerate(self._weights):
            layer.norm.apply(plan, hidden, normed, rows)
            mixed = self._attention(plan, rows, space, layer, index, normed, prefill=prefill)
            plan.add(
                ops.Linear(
                    x=mixed,
                    y=hidden,
                    weight=layer.output,
                    bias=layer.output_bias,
                    residual=hidden,
                    live=rows.live,
                )
            )
            layer.ffn.apply(plan, hidden, rows, space)

    def _attention(
        self, plan: Plan, rows: Rows, space: Workspace, layer: Layer, index: int, x: Buffer,
        *, prefill: bool,
    ) -> Buffer:  # fmt: skip
        config, count, dtype = self.config, rows.rows, self.dtype
        kv = self._cache.kv[index]
        q_size, kv_size = config.heads * config.head_dim, config.kv_heads * config.head_dim
        packed = space.get("qkv", count, q_size + 2 * kv_size, dtype=dtype)
        q = space.get("q", count, config.heads, config.head_dim, dtype=dtype)
        y = space.get("mixed", count, config.heads, config.head_dim, dtype=dtype)
        plan.add(ops.Linear(x=x, y=packed, weight=layer.qkv, bias=layer.qkv_bias, live=rows.live))
        plan.add(
            ops.QkNormRopeWrite(
                projection=packed,
                q=q,
                kv=kv,
                q_norm=layer.q_norm,
                k_norm=layer.k_norm,
                rope=self._rope,
                row_position=rows.row_position,
                row_length=rows.row_length,
                row_sequence=rows.row_sequence,
                block_table=rows.block_table,
                live=rows.live,
                k_offset=q_size,
                v_offset=q_size + kv_size,
                pairing=int(config.rope.adjacent_pairs),
                eps=config.eps,
            )
        )
        attend(plan, rows, space, q, kv, y, prefill=prefill)
        return y.view(count, q_size)


def _load_layer(loader: Loader, config: DenseConfig, names: Names, index: int) -> Layer:
    prefix = names.layer.format(index)
    q_size, kv_size = config.heads * config.head_dim, config.kv_heads * config.head_dim
    qkv, sizes = (names.q, names.k, names.v), (q_size, kv_size, kv_size)

    def vector(name: str, size: int) -> Buffer:
        return loader.vector(f"{prefix}{name}.weight", size)

    def linear(tensors: tuple[str, ...], rows: tuple[int, ...], columns: int) -> LinearHandle:
        return loader.linear([f"{prefix}{n}.weight" for n in tensors], rows, columns)

    def bias(tensors: tuple[str, ...], rows: tuple[int, ...]) -> Buffer:
        return loader.vectors([f"{prefix}{n}.bias" for n in tensors], rows)

    def norm(name: str) -> Norm:
        return Norm(vector(name, config.hidden), config.eps)

    return Layer(
        norm=norm(names.attention_norm),
        qkv=linear(qkv, sizes, config.hidden),
        qkv_bias=bias(qkv, sizes) if config.attention_bias else None,
        q_norm=vector(names.q_norm, config.head_dim) if config.qk_norm else None,
        k_norm=vector(names.k_norm, config.head_dim) if config.qk_norm else None,
        output=linear((names.output,), (config.hidden,), q_size),
        output_bias=bias((names.output,), (config.hidden,)) if config.output_bias else None,
        ffn=FeedForward(
            norm=norm(names.ffn_norm),
            gate_up=linear((names.gate, names.up), (config.ffn, config.ffn), config.hidden),
            down=linear((names.down,), (config.hidden,), config.ffn),
        ),
    )
