"""How near the runner alone comes to what the machine gives: decode, prefill, and each op."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from flatwake_service.bench.layers import RunnerLayer
from flatwake_service.engine.runner import Runner
from flatwake_service.engine.speed import OpTime, time_by_op

PROMPT = 512
_TRACES = 5


@dataclass(frozen=True)
class Limits:
    """What the machine gives at most: bytes read a second, multiply-adds a second on registers
    (None where the backend measures none).
    """

    read: float
    products: float | None


@dataclass(frozen=True)
class Speeds:
    """Medians. `decode`, `share` by users: tokens a second; the weights' bytes of a step, by its
    time, by the rate at which as many bytes are read. `ops` by what was traced.
    """

    weights: int
    limits: Limits
    prefill_tokens: int
    prefill: float
    decode: dict[int, float]
    share: dict[int, float]
    ops: dict[str, list[OpTime]]


def measure(
    runner: Runner, layer: RunnerLayer, users: Sequence[int], tokens: int, rounds: int
) -> Speeds:
    """Each round reads as many bytes as the weights have, then decodes, for every user count."""
    weights, length = runner.decoder.step_bytes, min(PROMPT, runner.context - 1)
    reads: list[float] = []
    decode: dict[int, list[float]] = {u: [] for u in users}
    share: dict[int, list[float]] = {u: [] for u in users}
    prefill, ops = [], {}
    for _ in range(rounds):
        for count in users:
            reads.append(runner.backend.read_rate(weights, _TRACES))
            speed = layer.measure(count, tokens).decode
            decode[count].append(speed)
            share[count].append(weights * speed / count / reads[-1])
        prefill.append(layer.prefill_speed(length))
    for count in users:
        bucket = min(n for n in runner.plans.decode if n >= count)
        layer.measure(count, tokens)
        ops[f"decode {count}"] = time_by_op(runner.plans.decode[bucket], _TRACES)
    chunk = max(n for n in runner.plans.chunk if n <= length)
    layer.prefill_speed(chunk)
    ops[f"prefill {chunk}"] = time_by_op(runner.plans.chunk[chunk], _TRACES)
    limits = Limits(
        statistics.median(reads), runner.backend.product_rate(runner.decoder.activations)
    )
    return Speeds(
        weights,
        limits,
        length,
        statistics.median(prefill),
        {u: statistics.median(v) for u, v in decode.items()},
        {u: statistics.median(v) for u, v in share.items()},
        ops,
    )


def table(backend: str, speeds: Speeds) -> list[str]:
    """Lines for the terminal."""
    limits = speeds.limits
    lines = [
        f"{backend}: weights of {speeds.weights / 1e6:.0f} MB, "
        f"as many bytes are read at {limits.read / 1e9:.1f} GB/s"
    ]
    if limits.products:
        lines.append(f"products on registers: {2 * limits.products / 1e9:,.0f} GFLOP/s")
    lines.append(f"prefill of {speeds.prefill_tokens} tokens   {speeds.prefill:8.1f} tok/s")
    for users, decode in speeds.decode.items():
        share = f"{speeds.share[users]:6.1%} of the read rate"
        lines.append(f"decode, {users} users        {decode:8.1f} tok/s   {share}")
    for name, times in speeds.ops.items():
        lines += ["", f"{name:24} calls       ms    GB/s       GFLOP/s"]
        for op in times:
            rate, products = op.bytes / op.seconds, 2 * op.products / op.seconds
            part = "" if not limits.products else f" {products / 2 / limits.products:5.0%}"
            done = f"{products / 1e9:9.1f}{part}" if op.products else ""
            lines.append(
                f"  {op.name:22} {op.calls:5} {op.seconds * 1e3:8.3f} {rate / 1e9:7.1f} "
                f"{rate / limits.read:4.0%} {done}"
            )
    return lines


def figures(speeds: Speeds) -> dict[str, object]:
    """For the JSON file; shares are fractions, GFLOP/s count a multiply-add as two."""
    limits = speeds.limits
    return {
        "weight_bytes": speeds.weights,
        "read_bytes_per_second": round(limits.read),
        "peak_gflop_s": _short(2 * limits.products / 1e9) if limits.products else None,
        "prefill_tokens_per_second": _short(speeds.prefill),
        "decode_tokens_per_second": {str(u): _short(v) for u, v in speeds.decode.items()},
        "bandwidth_share": {str(u): _short(v) for u, v in speeds.share.items()},
        "ops": {
            name: {op.name: _op(op, limits) for op in times} for name, times in speeds.ops.items()
        },
    }


def _op(op: OpTime, limits: Limits) -> dict[str, float | None]:
    products = op.products / op.seconds
    return {
        "calls": op.calls,
        "ms": _short(op.seconds * 1e3),
        "gb_s": _short(op.bytes / op.seconds / 1e9),
        "read_share": _short(op.bytes / op.seconds / limits.read),
        "gflop_s": _short(2 * products / 1e9),
        "peak_share": _short(products / limits.products) if limits.products else None,
    }


def _short(value: float) -> float:
    """Four digits of it."""
    return float(f"{value:.4g}")
