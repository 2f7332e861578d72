"""Golden traces on a GPU backend: `python check_golden.py [--backend cuda] [--random FOLDER]`.

Weights and activations are bfloat16 there. Of the hybrid fixture, positions whose margin is below
the largest logit difference don't count, and their share may be less than float32's. A
random-weight 0.8B, drawn into FOLDER, is fed random tokens, and chooses as transformers does
wherever the margin exceeds the most that bfloat16 moves any of transformers' own logits by.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import cast

import numpy as np
from flatwake_kernels.backends import BackendName
from flatwake_service.engine.config import EngineConfig
from flatwake_service.engine.runner import open_runner
from flatwake_service.verify.replay import replay
from flatwake_service.verify.trace import LEAST_SHARE, LEAST_SHARE_ROUNDED, compare, load

sys.path.insert(0, str(Path(__file__).parent))
from random_qwen3_5 import write

ROOT = Path(__file__).parents[1]


def check(model: Path, golden: str, backend: str, chunk: int, least: float) -> bool:
    traces, notes = load(ROOT / "service" / "verify" / "goldens" / f"{golden}.npz")
    config = EngineConfig(
        model=str(model),
        backend=cast(BackendName, backend),
        context_length=max(len(t.prompt) + len(t.tokens) for t in traces),
        prefill_tokens=chunk,
    )
    runner = open_runner(config, lambda *_: None)
    logits = replay(runner, traces)
    found = compare(traces, logits, least=least)
    runner.close()
    pairs = [(t, x) for t, x in zip(traces, logits, strict=True) if t.errors is not None]
    if pairs:
        sure = np.concatenate([t.margins >= t.errors for t, _ in pairs])
        same = np.concatenate([np.array(t.tokens) == x.argmax(axis=1) for t, x in pairs])
        print(
            f"{golden}: {(sure & same).sum()} of {sure.sum()} positions whose margin exceeds "
            f"transformers' own error there agree, {same.sum()} of all {len(same)}"
        )
    print(f"{golden}, chunks of {chunk}: {found.share:.1%} count, {found}; oracle {notes}")
    return found.equal


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--backend", default="cuda")
    parser.add_argument("--random", type=Path)
    options = parser.parse_args()
    hybrid = ROOT / "fixtures" / "hybrid" / "model"
    equal = [
        check(hybrid, "hybrid", options.backend, chunk, LEAST_SHARE_ROUNDED) for chunk in (64, 128)
    ]
    if options.random:
        model = write("0.8B", options.random, fresh=True)
        equal.append(check(model, "random-0.8B", options.backend, 128, LEAST_SHARE))
    return 0 if all(equal) else 1


if __name__ == "__main__":
    sys.exit(main())
