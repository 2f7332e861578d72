"""Bytes a second of linear layers and microseconds of the other ops on a device, in one run.

    python3 device_bench.py --backend cuda [--torch] [--json FILE]

Weights rotate over more memory than the caches hold; calls run as one captured graph, replayed.
Compared with a read-only kernel over 6 GB, and with torch's own GEMMs captured likewise.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import platform
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
from flatwake_kernels import ops
from flatwake_kernels.backend import Weight
from flatwake_kernels.buffer import Buffer
from flatwake_kernels.declaration import LinearHandle, Op
from flatwake_kernels.dtype import Dtype
from flatwake_kernels.native import NativeBackend

SHAPES = (
    (18432, 2560), (2560, 9216), (12352, 2560), (2560, 4096),
    (7168, 1024), (1024, 3584), (24576, 4096), (4096, 12288),
)  # fmt: skip
ROWS = (1, 2, 4, 8, 16)
ROTATE_BYTES = 1 << 30
READ_BYTES = 6 << 30
BF16, F32, I32 = Dtype.BF16, Dtype.F32, Dtype.I32


class Bench:
    def __init__(self, name: str, settings: dict[str, str]) -> None:
        self.backend = NativeBackend(name, settings=settings)
        self.random = np.random.default_rng(7)

    def bf16(self, *shape: int, scale: float = 1.0) -> Buffer:
        buffer = self.backend.allocate(*shape, dtype=BF16)
        values = self.random.standard_normal(shape, np.float32) * np.float32(scale)
        buffer.write((values.view(np.uint32) >> 16).astype(np.uint16))
        return buffer

    def ints(self, *values: int) -> Buffer:
        buffer = self.backend.allocate(len(values), dtype=I32)
        buffer.write(np.array(values, np.int32))
        return buffer

    def zeros(self, *shape: int, dtype: Dtype = F32) -> Buffer:
        return self.backend.allocate(*shape, dtype=dtype)

    def layers(self, rows: int, columns: int) -> list[LinearHandle]:
        """Copies of one layer, enough to outgrow the caches."""
        values = self.random.standard_normal(1 << 20, np.float32) * np.float32(columns**-0.5)
        bits = (values.view(np.uint32) >> 16).astype(np.uint16)
        data = np.resize(bits, rows * columns).view(np.uint8)
        count = max(2, -(-ROTATE_BYTES // data.nbytes))
        view = Weight(data.reshape(rows, -1), BF16, columns)
        return [self.backend.prepare_linear([view], "float") for _ in range(count)]

    def seconds(self, calls: list[Op], replays: int = 20) -> float:
        """Seconds of one call, as the best of five rounds of graph replays."""
        with self.backend.record() as plan:
            for call in calls:
                plan.add(call)
        plan.capture()
        event = self.backend.event()
        best = float("inf")
        for _ in range(6):
            start = time.perf_counter()
            for _ in range(replays):
                plan.run()
            event.record()
            event.wait()
            best = min(best, time.perf_counter() - start)
        return best / replays / len(calls)

    def read_bandwidth(self) -> float:
        library = ctypes.CDLL(str(self.backend.library.path))
        seconds = ctypes.c_double()
        code = library.fw_measure_read(
            self.backend.context, ctypes.c_int64(READ_BYTES), 10, ctypes.byref(seconds)
        )
        assert code == 0, "the read-only kernel failed"
        return READ_BYTES / seconds.value


def linear(bench: Bench, outputs: int, inputs: int) -> dict[str, float]:
    layers = bench.layers(outputs, inputs)
    live = bench.ints(16)
    found = {}
    for rows in ROWS:
        x, y = bench.bf16(rows, inputs), bench.zeros(rows, outputs, dtype=BF16)
        calls: list[Op] = [ops.Linear(x=x, y=y, weight=w, live=live) for w in layers]
        found[str(rows)] = outputs * inputs * 2 / bench.seconds(calls) / 1e12
    return found


def torch_linear(outputs: int, inputs: int) -> dict[str, float]:
    import torch

    count = max(2, -(-ROTATE_BYTES // (outputs * inputs * 2)))
    weights = [
        torch.randn(outputs, inputs, device="cuda", dtype=torch.bfloat16) for _ in range(count)
    ]
    found = {}
    for rows in ROWS:
        x = torch.randn(rows, inputs, device="cuda", dtype=torch.bfloat16)
        for w in weights[:2]:
            torch.nn.functional.linear(x, w)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for w in weights:
                torch.nn.functional.linear(x, w)
        best = float("inf")
        for _ in range(6):
            torch.cuda.synchronize()
            start = time.perf_counter()
            for _ in range(20):
                graph.replay()
            torch.cuda.synchronize()
            best = min(best, time.perf_counter() - start)
        found[str(rows)] = outputs * inputs * 2 / (best / 20 / count) / 1e12
    return found


def attention(bench: Bench, length: int, sequences: int) -> Op:
    heads, kv_heads, dim = 16, 4, 256
    per = -(-length // 16)
    kv = bench.zeros(2, per * sequences + 1, kv_heads, 16, dim, dtype=BF16)
    table = bench.backend.allocate(sequences, per, dtype=I32)
    table.write(1 + np.arange(sequences * per, dtype=np.int32).reshape(sequences, per))
    return ops.AttentionDecode(
        q=bench.bf16(sequences, heads, dim),
        kv=kv,
        partial=bench.zeros(sequences, heads, 32, dim),
        partial_ml=bench.zeros(sequences, heads, 32, 2),
        row_length=bench.ints(*[length] * sequences),
        first_row=bench.ints(*range(sequences)),
        row_count=bench.ints(*[1] * sequences),
        block_table=table,
        split_positions=ops.BLOCK_TOKENS,  # as in a plan for a GPU
        scale=1 / 16,
    )


def small_ops(bench: Bench) -> dict[str, float]:
    """Microseconds a call, within a graph of twenty."""
    rows, width, vocabulary = 8, 2560, 248320
    live = bench.ints(rows)
    found = {}

    def measure(name: str, call: Op) -> None:
        found[name] = bench.seconds([call] * 20) * 1e6

    x, y = bench.bf16(rows, width), bench.zeros(rows, width, dtype=BF16)
    weight = bench.zeros(width)
    measure("rms_norm 8x2560", ops.RmsNorm(x=x, y=y, weight=weight, live=live, eps=1e-6))
    for sequences in (1, 8):
        for length in (1024, 8192, 32768):
            name = f"attention_decode {sequences}x{length}, 4 KV heads of 256"
            measure(name, attention(bench, length, sequences))
    slots = bench.backend.allocate(56 * rows, dtype=Dtype.I8)
    records = (ops.Sampling * rows)()
    for temperature in (0.0, 1.0):
        for record in records:
            record.temperature, record.top_p, record.repetition_penalty = temperature, 0.95, 1.0
            record.top_k, record.logprobs = 40, -1
        slots = bench.backend.allocate(ctypes.sizeof(records), dtype=Dtype.I8)
        slots.write(np.frombuffer(bytes(records), np.int8))
        logits = bench.backend.allocate(rows, vocabulary, dtype=F32)
        logits.write(bench.random.standard_normal((rows, vocabulary), np.float32))
        call = ops.Sample(
            logits=logits,
            slots=slots,
            counts=bench.zeros(rows, vocabulary, dtype=I32),
            bias_id=bench.zeros(rows, 8, dtype=I32),
            bias=bench.zeros(rows, 8),
            ban_id=bench.zeros(rows, 8, dtype=I32),
            sampling_slot=bench.ints(*range(rows)),
            sample_row=bench.ints(*range(rows)),
            row_id=bench.zeros(rows, dtype=I32),
            row_position=bench.zeros(rows, dtype=I32),
            row_length=bench.zeros(rows, dtype=I32),
            next_id=bench.zeros(rows, dtype=I32),
            vocabulary_live=248077,
        )
        measure(f"sample 8x248320 temperature {temperature:g}", call)
    for sequences in (1, 8):
        measure(f"gdn_step {sequences}x32 heads of 128", gdn_step(bench, sequences))
    return found


def gdn_step(bench: Bench, sequences: int) -> Op:
    k_heads, v_heads, dim = 16, 32, 128
    return ops.GdnStep(
        qkv=bench.bf16(sequences, (2 * k_heads + v_heads) * dim),
        ab=bench.bf16(sequences, 2 * v_heads),
        negative_a=bench.zeros(v_heads),
        dt_bias=bench.zeros(v_heads),
        state=bench.zeros(sequences + 1, v_heads, dim, dim),
        y=bench.zeros(sequences, v_heads, dim, dtype=BF16),
        first_row=bench.ints(*range(sequences)),
        row_count=bench.ints(*[1] * sequences),
        slot_in=bench.ints(*range(1, sequences + 1)),
        slot_out=bench.ints(*range(1, sequences + 1)),
        k_heads=k_heads,
        a_offset=0,
        b_offset=v_heads,
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--backend", default="cuda", choices=["cuda", "hip"])
    parser.add_argument("--torch", action="store_true", help="measure torch's GEMMs too")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    out: Callable[[str], object] = sys.stdout.write

    bench = Bench(options.backend, {})
    plain = Bench(options.backend, {"matrix": "0"})
    device = bench.backend.device
    read = bench.read_bandwidth()
    out(f"{device.name} ({device.architecture}): reads {read / 1e12:.2f} TB/s\n")
    out(f"{'TB/s of weights':24}" + "".join(f"{r:>8}" for r in ROWS) + "\n")
    results: dict[str, object] = {"read_tb_s": read / 1e12}
    for outputs, inputs in SHAPES:
        rows: dict[str, dict[str, float]] = {}
        rows["matrix units"] = linear(bench, outputs, inputs)
        rows["multiply-adds"] = linear(plain, outputs, inputs)
        if options.torch:
            rows["torch"] = torch_linear(outputs, inputs)
        for name, found in rows.items():
            label = f"{outputs}x{inputs} {name}"
            out(f"{label:28}" + "".join(f"{found[str(r)]:8.2f}" for r in ROWS) + "\n")
        results[f"{outputs}x{inputs}"] = rows
    small = small_ops(bench)
    for name, microseconds in small.items():
        out(f"{name:56}{microseconds:9.1f} us\n")
    results["microseconds"] = small
    results["device"] = device.name
    results["date"] = datetime.now(UTC).isoformat(timespec="seconds")
    results["python"] = platform.python_version()
    if options.json:
        options.json.write_text(json.dumps(results, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
