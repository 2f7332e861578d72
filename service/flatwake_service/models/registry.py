"""Which decoder reads an architecture, by the name that the checkpoint gives it."""

from __future__ import annotations

from collections.abc import Callable

from flatwake_kernels.dtype import Dtype

from flatwake_service.errors import UnsupportedModel
from flatwake_service.models.decoder import Decoder
from flatwake_service.models.dense import DenseDecoder
from flatwake_service.models.load import Loader
from flatwake_service.models.qwen3_5 import Qwen35Decoder

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
    built = decoder(loader, dtype)
    loader.finish()
    return built
