"""transformers on the same checkpoint: float32, greedy. The only module that imports torch."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

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


def load_oracle(model: Path, dtype: str = "float32") -> Any:
    """The model as transformers reads it, its weights (dequantised) of a torch type."""
    versions()
    import torch
    from transformers import AutoModelForCausalLM

    where: dict[str, str] = {}
    folder = model
    if model.is_file():
        folder, where = model.parent, {"gguf_file": model.name}
    oracle = AutoModelForCausalLM.from_pretrained(folder, dtype=getattr(torch, dtype), **where)
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


def trace_forced(
    model: Path, prompts: Sequence[Sequence[int]], fed: Sequence[Sequence[int]]
) -> list[Trace]:
    """Traces over tokens that were chosen beforehand, with the most that bfloat16 moves any logit
    of each position by.
    """
    exact = forced_logits(load_oracle(model), prompts, fed)
    # Loaded anew: a cast would round rope's frequencies too, which transformers keeps in float32.
    rounded = forced_logits(load_oracle(model, "bfloat16"), prompts, fed)
    traces = []
    for prompt, lead, whole, near in zip(prompts, fed, exact, rounded, strict=True):
        ids, best = (np.stack(column) for column in zip(*map(top_of, whole), strict=True))
        chosen = tuple(int(i) for i in ids[:, 0])
        errors = np.abs(near - whole).max(axis=1)
        traces.append(Trace(tuple(prompt), chosen, ids, best, tuple(lead), errors))
    return traces


def forced_logits(
    oracle: Any, prompts: Sequence[Sequence[int]], fed: Sequence[Sequence[int]]
) -> list[NDArray[np.float32]]:
    """`[len(fed), vocabulary]` of each prompt, before each of the tokens that are fed."""
    import torch

    found = []
    for prompt, lead in zip(prompts, fed, strict=True):
        ids = torch.tensor([[*prompt, *lead]])
        with torch.inference_mode():
            kept = oracle(ids, use_cache=False, logits_to_keep=len(lead) + 1).logits[0, :-1]
        found.append(kept.float().numpy())
    return found
