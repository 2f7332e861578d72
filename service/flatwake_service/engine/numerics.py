"""What is computed in which type: the checkpoint's, the machine's and the user's word on it."""

from __future__ import annotations

from flatwake_kernels.backend import Activations
from flatwake_kernels.dtype import Dtype

from flatwake_service.engine.config import HOST_BACKENDS, EngineConfig
from flatwake_service.weights import Checkpoint

KV_TYPES = {"float32": Dtype.F32, "float16": Dtype.F16, "bfloat16": Dtype.BF16}


def numerics(config: EngineConfig, checkpoint: Checkpoint) -> tuple[Dtype, Dtype, Activations]:
    """Types of KV and activations, and how quantised weights meet them.

    Left to us, quantised weights meet int8 activations where that is the fast path: on the CPU.
    """
    formats = {Dtype(int(f)) for f in checkpoint.weight_formats()}
    quantised = any(f.quantised for f in formats)
    activations: Activations = "float" if config.activations == "float" else "int8"
    if config.activations == "auto" and not (quantised and config.backend == "cpu"):
        activations = "float"
    stored = Dtype.F32
    if quantised or Dtype.F16 in formats:
        stored = Dtype.F16
    elif Dtype.BF16 in formats:
        stored = Dtype.BF16
    host = config.backend in HOST_BACKENDS
    dtype = Dtype.F32 if host else stored
    if config.kv_dtype != "auto":
        return KV_TYPES[config.kv_dtype], dtype, activations
    exact = config.backend == "reference" or (host and activations == "float")
    return Dtype.F32 if exact else stored, dtype, activations
