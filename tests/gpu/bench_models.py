"""Decode and prefill of random-weight Qwen3.5 models on a GPU, beside the memory's read rate.

`python bench_models.py 0.8B 4B [--backend cuda] [--json FILE]`. torch measures the read rate of
the same run and is needed for nothing else.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import cast

from flatwake_kernels.backends import BackendName
from flatwake_service.engine.config import EngineConfig
from flatwake_service.engine.runner import Runner, open_runner
from flatwake_service.engine.speed import measure_decode, measure_prefill, time_by_op

sys.path.insert(0, str(Path(__file__).parent))
from random_qwen3_5 import SIZES, write

USERS = (1, 2, 4, 8)


def read_rate() -> float:
    """Bytes a second of a sum over 6 GB, the best of five."""
    import torch

    data = torch.ones(3 << 30, dtype=torch.bfloat16, device="cuda").view(torch.int32)
    best = 0.0
    for _ in range(5):
        torch.cuda.synchronize()
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        data.sum(dtype=torch.int32)
        end.record()
        torch.cuda.synchronize()
        best = max(best, data.nbytes / (start.elapsed_time(end) / 1e3))
    return best


def bench(runner: Runner, rate: float, steps: int) -> dict[str, object]:
    decode, share = {}, {}
    for users in USERS:
        found = measure_decode(runner, users, 64, steps)
        decode[str(users)] = round(found.tokens_per_second, 1)
        share[str(users)] = round(found.bytes_per_second / rate, 3)
        print(
            f"  {users} users: {found.step_seconds * 1e3:7.3f} ms a step, "
            f"{found.tokens_per_second:7.1f} tok/s, {found.bytes_per_second / rate:6.1%} of reads",
            flush=True,
        )
    prefill = measure_prefill(runner, 2048, 2)
    print(
        f"  prefill of 2048: {prefill.seconds * 1e3:.1f} ms, {prefill.tokens_per_second:.0f} tok/s"
    )
    for users in (1, 8):
        print(f"  by op at {users}:")
        for op in time_by_op(runner.plans.decode[users], 5)[:12]:
            gbs = op.weight_bytes / op.seconds / 1e9
            print(f"    {op.name:20} {op.calls:4} {op.seconds * 1e3:8.3f} ms {gbs:8.0f} GB/s")
    return {"decode_tok_s": decode, "share": share, "prefill_tok_s": prefill.tokens_per_second}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("sizes", nargs="+", choices=SIZES)
    parser.add_argument("--backend", default="cuda")
    parser.add_argument("--folder", type=Path, default=Path("/tmp/models"))
    parser.add_argument("--steps", type=int, default=64)
    parser.add_argument("--graphs", choices=["on", "off"], default="on")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    rate = read_rate() if options.backend == "cuda" else float("nan")
    print(f"reads {rate / 1e12:.2f} TB/s", flush=True)
    found = {}
    for size in options.sizes:
        began = time.monotonic()
        model = write(size, options.folder / size)
        config = EngineConfig(
            model=str(model),
            backend=cast(BackendName, options.backend),
            context_length=4096,
            graphs=options.graphs,
        )
        runner = open_runner(config, lambda *_: None)
        print(f"{size}: ready after {time.monotonic() - began:.0f} s", flush=True)
        found[size] = bench(runner, rate, options.steps)
        runner.close()
    if options.json:
        options.json.write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
