"""A step's linear layers by torch's cuBLAS, decode as one captured graph, a prompt's as they come;
and the memory's read rate: `python cublas_step.py 4B --users 1 8 [--tokens 2048]`, as JSON.

The same shapes as ours: projections that read one input are one matrix, gate and up too. Weights of
a step are read once, so no cache holds them. A program of its own: a server's process has no torch,
and beside it in one process our 4B step took 2.7 % longer.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable

import torch
from random_qwen3_5 import SIZES

WARM, ROUNDS = 3, 20
READ_BYTES = 6 << 30


def read_rate() -> float:
    """Bytes a second of a sum over 6 GB, the best of five."""
    data = torch.ones(READ_BYTES // 2, dtype=torch.bfloat16, device="cuda").view(torch.int32)
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


def shapes(size: str) -> list[tuple[int, int]]:
    """(outputs, inputs) of every product of a step, in order; the output head last."""
    config = SIZES[size]
    h, f = int(config["hidden_size"]), int(config["intermediate_size"])
    q, kv = 256 * int(config["num_attention_heads"]), 256 * int(config["num_key_value_heads"])
    v_heads = int(config["linear_num_value_heads"])
    value = 128 * v_heads
    found = []
    for i in range(int(config["num_hidden_layers"])):
        if (i + 1) % 4 == 0:
            found += [(2 * (q + kv), h), (h, q)]
        else:
            found += [(2 * 2048 + 2 * value + 2 * v_heads, h), (h, value)]
        found += [(2 * f, h), (h, f)]
    return [*found, (248320, h)]


def _weights(size: str, *, head: bool) -> list[torch.Tensor]:
    products = shapes(size) if head else shapes(size)[:-1]
    return [torch.randn(n, k, device="cuda", dtype=torch.bfloat16) * k**-0.5 for n, k in products]


def _best(run: Callable[[], None]) -> float:
    for _ in range(WARM):
        run()
    times = []
    for _ in range(ROUNDS):
        torch.cuda.synchronize()
        began = time.perf_counter()
        run()
        torch.cuda.synchronize()
        times.append(time.perf_counter() - began)
    return sorted(times)[len(times) // 2]


def decode_seconds(size: str, rows: list[int]) -> dict[str, float]:
    """Median seconds of a captured graph of all products for so many rows."""
    weights = _weights(size, head=True)
    found = {}
    for count in rows:
        xs = {w.shape[1] for w in weights}
        x = {k: torch.randn(count, k, device="cuda", dtype=torch.bfloat16) for k in xs}
        for w in weights:
            torch.nn.functional.linear(x[w.shape[1]], w)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for w in weights:
                torch.nn.functional.linear(x[w.shape[1]], w)
        found[str(count)] = _best(graph.replay)
        del graph
    return found


def prefill_seconds(size: str, tokens: int) -> float:
    """Median seconds of all products but the head's for a prompt of so many tokens."""
    weights = _weights(size, head=False)
    x = {
        k: torch.randn(tokens, k, device="cuda", dtype=torch.bfloat16)
        for k in {w.shape[1] for w in weights}
    }

    def run() -> None:
        for w in weights:
            torch.nn.functional.linear(x[w.shape[1]], w)

    return _best(run)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("sizes", nargs="*", metavar="SIZE", help=", ".join(SIZES))
    parser.add_argument("--users", nargs="+", type=int, default=[1])
    parser.add_argument("--tokens", type=int, help="of a prompt")
    options = parser.parse_args()
    found: dict[str, object] = {"read_bytes_per_second": read_rate()}
    for size in options.sizes:
        torch.cuda.empty_cache()
        by_size: dict[str, object] = {"decode": decode_seconds(size, options.users)}
        if options.tokens:
            by_size["prefill"] = prefill_seconds(size, options.tokens)
        found[size] = by_size
    print(json.dumps(found))


if __name__ == "__main__":
    main()
