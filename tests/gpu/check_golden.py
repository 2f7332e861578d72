"""The hybrid fixture's golden traces on a GPU backend: `python check_golden.py [--backend cuda]`.

Weights and activations are bfloat16 there: positions whose margin is below the largest logit
difference don't count. The share that counts is printed, and may be less than float32's.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import cast

from flatwake_kernels.backends import BackendName
from flatwake_service.engine.config import EngineConfig
from flatwake_service.engine.runner import open_runner
from flatwake_service.verify.replay import replay
from flatwake_service.verify.trace import LEAST_SHARE_ROUNDED, compare, load

ROOT = Path(__file__).parents[1]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--backend", default="cuda")
    options = parser.parse_args()
    traces, notes = load(ROOT / "service" / "verify" / "goldens" / "hybrid.npz")
    equal = True
    for chunk in (64, 128):
        config = EngineConfig(
            model=str(ROOT / "fixtures" / "hybrid" / "model"),
            backend=cast(BackendName, options.backend),
            context_length=max(len(t.prompt) + len(t.tokens) for t in traces),
            prefill_tokens=chunk,
        )
        runner = open_runner(config, lambda *_: None)
        found = compare(traces, replay(runner, traces), least=LEAST_SHARE_ROUNDED)
        runner.close()
        print(f"chunks of {chunk}: {found.share:.1%} count, {found}; oracle {notes}")
        equal = equal and found.equal
    return 0 if equal else 1


if __name__ == "__main__":
    sys.exit(main())
