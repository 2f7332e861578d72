"""Which decoder reads an architecture, by the name that the checkpoint gives it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from flatwake_kernels.buffer import Buffer
from flatwake_kernels.dtype import Dtype
from flatwake_kernels.plan import Plan

from flatwake_service.errors import UnsupportedModel
from flatwake_service.models.cache import Cache, CacheShape
from flatwake_service.models.dense import DenseDecoder
from flatwake_service.models.load import Loader
from flatwake_service.models.qwen3_5 import Qwen35Decoder
from flatwake_service.models.rows import Rows
from flatwake_service.models.workspace import Workspace


class Decoder(Protocol):
    """A model's steps as calls on ops.

    `step_bytes` of weights are read by a decode step. `context` is the checkpoint's own.
    """

    vocabulary: int
    context: int
    step_bytes: int
    dtype: Dtype
    cache_shape: CacheShape

    def bind(self, cache: Cache, context: int) -> None: ...

    def decode(self, plan: Plan, rows: Rows, space: Workspace) -> Buffer: ...

    def prefill(self, plan: Plan, rows: Rows, space: Workspace) -> Buffer: ...

    def logits(self, plan: Plan, hidden: Buffer, rows: Rows, space: Workspace) -> Buffer: ...


DECODERS: dict[str, Callable[[Loader, Dtype], Decoder]] = {
    # Hugging Face's names
    "LlamaForCausalLM": DenseDecoder,
    "MistralForCausalLM": DenseDecoder,
    "Qwen2ForCausalLM": DenseDecoder,
    "Qwen3ForCausalLM": DenseDecoder,
    "Qwen3_5ForCausalLM": Qwen35Decoder,
    "Qwen3_5ForConditionalGeneration": Qwen35Decoder,
    # GGUF's
    "llama": DenseDecoder,
    "qwen2": DenseDecoder,
    "qwen3": DenseDecoder,
    "qwen35": Qwen35Decoder,
}


def build_decoder(loader: Loader, dtype: Dtype) -> Decoder:
    """The decoder of the loader's checkpoint, its weights prepared.

    Raises:
        UnsupportedModel: no decoder reads this architecture; those known are listed.
    """
    architecture = loader.checkpoint.architecture
    decoder = DECODERS.get(architecture)
    if decoder is None:
        raise UnsupportedModel(
            f"architecture {architecture} is not supported",
            cure=f"known are {' '.join(DECODERS)}",
        )
    return decoder(loader, dtype)
