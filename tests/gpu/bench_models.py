"""Decode and prefill of random-weight Qwen3.5 models on a GPU, beside the memory's read rate and
cuBLAS in the same run.

`python bench_models.py 0.8B 4B [--backend cuda] [--json FILE]`. Kernel settings are taken from
FLATWAKE_KERNEL_SETTINGS (name=value,…). The file is written after every model.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

from flatwake_kernels.backends import BackendName
from flatwake_kernels.native import NativePlan
from flatwake_service.engine.config import EngineConfig
from flatwake_service.engine.runner import Runner, open_runner
from flatwake_service.engine.speed import measure_decode, measure_prefill, time_by_op

sys.path.insert(0, str(Path(__file__).parent))
from random_qwen3_5 import SIZES, write

USERS = (1, 2, 4, 8)
DEPTH, DEEP = 64, 32768
PROMPT = 2048


def cublas(sizes: list[str], *, tokens: int | None) -> dict[str, Any]:
    """What cublas_step.py says of the device and these sizes."""
    command = [sys.executable, str(Path(__file__).with_name("cublas_step.py")), *sizes]
    command += ["--users", *map(str, USERS)]
    if tokens:
        command += ["--tokens", str(tokens)]
    answer = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout
    return cast(dict[str, Any], json.loads(answer))


def decode(runner: Runner, rate: float, steps: int) -> dict[str, dict[str, float]]:
    found: dict[str, dict[str, float]] = {"tok_s": {}, "step_ms": {}, "share": {}}
    for users in USERS:
        measured = measure_decode(runner, users, DEPTH, steps)
        found["tok_s"][str(users)] = round(measured.tokens_per_second, 1)
        found["step_ms"][str(users)] = round(measured.step_seconds * 1e3, 4)
        found["share"][str(users)] = round(measured.bytes_per_second / rate, 4)
        print(
            f"  {users} users: {measured.step_seconds * 1e3:7.3f} ms a step, "
            f"{measured.tokens_per_second:7.1f} tok/s, "
            f"{measured.bytes_per_second / rate:6.1%} of reads",
            flush=True,
        )
    return found


def depth(runner: Runner, rate: float, steps: int) -> dict[str, float]:
    """Decode of one user after 1,024 and after 32,768 positions."""
    near = measure_decode(runner, 1, 1024, steps)
    far = measure_decode(runner, 1, DEEP, steps)
    kv = (far.bytes - near.bytes) / rate
    loss = (far.step_seconds - kv) / near.step_seconds - 1
    print(
        f"  at 1K {near.step_seconds * 1e3:.3f} ms, at 32K {far.step_seconds * 1e3:.3f} ms, "
        f"of which KV {kv * 1e3:.3f} ms: {loss:+.1%}",
        flush=True,
    )
    return {
        "step_ms_1k": near.step_seconds * 1e3,
        "step_ms_32k": far.step_seconds * 1e3,
        "depth_loss_32k": loss,
    }


def launches(runner: Runner) -> dict[str, int]:
    """Kernel launches of a decode step by users, which are its graph's nodes."""
    found = {}
    for users in USERS:
        plan = runner.plans.decode[users]
        assert isinstance(plan, NativePlan)
        found[str(users)] = plan.launches()
    return found


def by_op(runner: Runner, users: int) -> dict[str, list[float]]:
    """Calls, milliseconds and GB/s of each op, alone on the device."""
    found = {}
    for op in time_by_op(runner.plans.decode[users], 5)[:14]:
        gbs = op.bytes / op.seconds / 1e9
        found[op.name] = [op.calls, round(op.seconds * 1e3, 4), round(gbs, 1)]
        print(f"    {op.name:20} {op.calls:4} {op.seconds * 1e3:8.3f} ms {gbs:8.0f} GB/s")
    return found


def bench(runner: Runner, rate: float, options: argparse.Namespace) -> dict[str, Any]:
    found: dict[str, Any] = {"decode": decode(runner, rate, options.steps)}
    found["launches"] = launches(runner)
    if options.deep:
        found["depth"] = depth(runner, rate, options.steps)
    if options.quick:
        return found
    prefill = measure_prefill(runner, PROMPT, 3)
    found["prefill_seconds_2048"] = prefill.seconds
    print(
        f"  prefill of {PROMPT}: {prefill.seconds * 1e3:.1f} ms, "
        f"{prefill.tokens_per_second:.0f} tok/s",
        flush=True,
    )
    print("  by op at 1:")
    found["by_op_1"] = by_op(runner, 1)
    print("  by op at 8:")
    found["by_op_8"] = by_op(runner, 8)
    print(f"  by op of a chunk of {PROMPT}:")
    chunk = time_by_op(runner.plans.chunk[PROMPT], 2)
    found["by_op_chunk"] = {op.name: [op.calls, round(op.seconds * 1e3, 3)] for op in chunk}
    for op in chunk[:10]:
        print(f"    {op.name:20} {op.calls:4} {op.seconds * 1e3:8.3f} ms")
    return found


def compare(found: dict[str, Any], theirs: dict[str, Any]) -> None:
    """Add cuBLAS's times for the same shapes, and the ratios."""
    ours = found["decode"]["step_ms"]
    steps = theirs["decode"]
    found["cublas_ms"] = {users: round(s * 1e3, 4) for users, s in steps.items()}
    found["cublas_linear_ratio"] = {
        users: round(s * 1e3 / ours[users], 4) for users, s in steps.items()
    }
    print(f"  cuBLAS ÷ our whole step: {found['cublas_linear_ratio']}", flush=True)
    if "prefill" in theirs:
        found["cublas_prefill_seconds_2048"] = theirs["prefill"]
        found["prefill_ratio"] = theirs["prefill"] / found["prefill_seconds_2048"]
        print(f"  torch's GEMMs ÷ our prefill: {found['prefill_ratio']:.3f}", flush=True)


def provenance() -> dict[str, object]:
    machine = subprocess.run(
        ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"],
        capture_output=True, text=True, check=False,
    ).stdout.strip()  # fmt: skip
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": machine,
        "versions": {"python": platform.python_version()},
        "command": " ".join(sys.argv),
        "settings": os.environ.get("FLATWAKE_KERNEL_SETTINGS", ""),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("sizes", nargs="+", choices=SIZES)
    parser.add_argument("--backend", default="cuda")
    parser.add_argument("--folder", type=Path, default=Path("/tmp/models"))
    parser.add_argument("--steps", type=int, default=64)
    parser.add_argument("--graphs", choices=["on", "off"], default="on")
    parser.add_argument("--look-ahead", choices=["auto", "off"], default="auto")
    parser.add_argument("--quick", action="store_true", help="decode alone")
    parser.add_argument("--deep", action="store_true", help="decode at 32K, too")
    parser.add_argument("--no-cublas", action="store_true")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    theirs, rate = {}, float("nan")
    if options.backend == "cuda":
        beside = [] if options.no_cublas else options.sizes
        theirs = cublas(beside, tokens=None if options.quick else PROMPT)
        rate = theirs["read_bytes_per_second"]
    print(f"reads {rate / 1e12:.2f} TB/s", flush=True)
    models: dict[str, object] = {}
    for size in options.sizes:
        began = time.monotonic()
        model = write(size, options.folder / size)
        config = EngineConfig(
            model=str(model),
            backend=cast(BackendName, options.backend),
            context_length=DEEP + 1024 if options.deep else 4096,
            prefill_tokens=PROMPT,
            graphs=options.graphs,
            look_ahead=options.look_ahead,
        )
        runner = open_runner(config, lambda *_: None)
        print(f"{size}: ready after {time.monotonic() - began:.0f} s", flush=True)
        found = bench(runner, rate, options)
        runner.close()
        del runner
        if size in theirs:
            compare(found, theirs[size])
        models[size] = found
        if options.json:
            text = json.dumps(
                {**provenance(), "read_tb_s": rate / 1e12, "models": models}, indent=1
            )
            options.json.write_text(text + "\n")


if __name__ == "__main__":
    main()
