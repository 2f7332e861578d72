"""transformers on the same checkpoint: float32, greedy. The only module that imports torch."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from flatwake_service.errors import FlatwakeError
from flatwake_service.verify.replay import Heard
from flatwake_service.verify.trace import Trace, top_of


class OracleMissing(FlatwakeError):
    """torch or transformers isn't installed."""

    reason = "OracleMissing"


def versions() -> dict[str, str]:
    """Of what the oracle is made."""
    try:
        import torch
        import transformers
    except ImportError as error:
        raise OracleMissing(
            f"the oracle needs {error.name}", cure="pip install 'flatwake[verify]'"
        ) from error
    return {"torch": torch.__version__, "transformers": transformers.__version__}


def load_oracle(model: Path) -> Any:
    """The model as transformers reads it, its weights (dequantised) as float32."""
    versions()
    import torch
    from transformers import AutoModelForCausalLM

    where: dict[str, str] = {}
    folder = model
    if model.is_file():
        folder, where = model.parent, {"gguf_file": model.name}
    oracle = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, **where)
    return oracle.eval()


def trace_oracle(
    oracle: Any, prompts: Sequence[Sequence[int]], tokens: int, heard: Heard = lambda _: None
) -> list[Trace]:
    """transformers' greedy traces, one prompt after another, nothing batched."""
    import torch

    traces = []
    for prompt in prompts:
        past, ids = None, torch.tensor([list(prompt)])
        tops, chosen = [], []
        for _ in range(tokens):
            with torch.inference_mode():
                step = oracle(ids, past_key_values=past, use_cache=True)
            past = step.past_key_values
            best_ids, best = top_of(step.logits[0, -1].float().numpy())
            tops.append((best_ids, best))
            chosen.append(int(best_ids[0]))
            ids = torch.tensor([[chosen[-1]]])
            heard(1)
        traces.append(
            Trace(
                tuple(prompt),
                tuple(chosen),
                np.stack([i for i, _ in tops]),
                np.stack([v for _, v in tops]),
            )
        )
    return traces
