"""A row's bits depend on its own sequence alone, whoever else is in the step."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from attention_cases import attention_decode, attention_prefill
from flatwake_kernels import ops
from flatwake_kernels.backend import Activations, Backend
from flatwake_kernels.backends import open_backend
from flatwake_kernels.buffer import Buffer
from flatwake_kernels.declaration import Op
from flatwake_kernels.dtype import Dtype
from op_bench import QUANTS, SEED, Bench

MOST = 16
FORMATS = [(f, a) for f in QUANTS for a in ("float", "int8")] + [
    (f, "float") for f in (Dtype.F32, Dtype.F16, Dtype.BF16)
]


def _run(bench: Bench, *calls: Op) -> None:
    with bench.backend.record() as plan:
        for call in calls:
            plan.add(call)
    plan.run()
    bench.check_guards()


@pytest.mark.parametrize(("dtype", "activations"), FORMATS, ids=lambda v: getattr(v, "name", v))
def test_linear_rows_are_equal_at_every_count(
    backend: Backend, dtype: Dtype, activations: Activations
) -> None:
    print("seed", SEED)
    bench = Bench(backend, SEED)
    layer = bench.layer(40, 512, dtype, activations=activations)
    x = bench.random.standard_normal((MOST, 512), np.float32)
    alone = [_linear(bench, layer, x[i : i + 1])[0] for i in range(MOST)]
    for count in (*range(2, MOST + 1),):
        start = count % 3 if count + count % 3 <= MOST else 0
        together = _linear(bench, layer, x[start : start + count])
        for i in range(count):
            assert np.array_equal(together[i], alone[start + i]), (count, i)


@pytest.mark.parametrize("activations", ["float", "int8"])
def test_a_chunk_s_rows_are_equal_however_it_was_cut(
    backend: Backend, activations: Activations
) -> None:
    print("seed", SEED)
    bench = Bench(backend, SEED)
    layer = bench.layer(40, 512, Dtype.Q4_1, activations=activations)
    x = bench.random.standard_normal((192, 512), np.float32)
    whole = _linear(bench, layer, x)
    for cut in (64, 128):
        parts = [_linear(bench, layer, x[:cut]), _linear(bench, layer, x[cut:])]
        assert np.array_equal(np.concatenate(parts), whole)


def _linear(bench: Bench, layer: object, x: np.ndarray, outputs: int = 40) -> np.ndarray:
    y = bench.empty(len(x), outputs)
    live = bench.ints([len(x)])
    _run(bench, ops.Linear(x=bench.given(x), y=y, weight=layer, live=live))  # type: ignore[arg-type]
    return y.read()


@pytest.mark.parametrize("build", [attention_decode, attention_prefill])
def test_attention_of_a_row_is_the_same_alone(backend: Backend, build: Callable[..., Op]) -> None:
    print("seed", SEED)
    lengths = [[33], [300], [1], [100, 101], [16]]
    bench = Bench(backend, SEED)
    op = build(bench, lengths, 8)
    _run(bench, op)
    together = _attention_rows(op)
    row = 0
    for sequence, seen in enumerate(lengths):
        for length in seen:
            alone = _only(bench, op, row, sequence, length)
            for name, values in _attention_rows(alone).items():
                wanted = together[name][row]
                assert np.array_equal(values[0], wanted), (name, sequence, length)
            row += 1


def _attention_rows(op: Op) -> dict[str, np.ndarray]:
    names = ("y",) if "y" in op.fields else ("partial", "partial_ml")
    found = {}
    for name in names:
        value = op.values[name]
        assert isinstance(value, Buffer)
        found[name] = value.read()
    return found


def _only(bench: Bench, op: Op, row: int, sequence: int, length: int) -> Op:
    """The same op over one row of the same KV."""
    buffers = {n: v for n, v in op.values.items() if isinstance(v, Buffer)}
    q, table = buffers["q"].read()[row : row + 1], buffers["block_table"].read()
    values = {
        **op.values,
        "q": bench.given(q),
        "row_length": bench.ints([length]),
        "first_row": bench.ints([0]),
        "row_count": bench.ints([1]),
        "block_table": bench.ints(table[sequence : sequence + 1]),
    }
    for name in ("y", "partial", "partial_ml"):
        if name in values:
            values[name] = bench.empty(1, *buffers[name].shape[1:])
    alone = type(op)(**values)
    _run(bench, alone)
    return alone


@pytest.mark.parametrize(("outputs", "rows"), [(40, 100), (1000, 3)])
def test_the_number_of_threads_changes_no_bit(outputs: int, rows: int) -> None:
    print("seed", SEED)
    found = []
    for threads in (1, 2, 3, 7):
        backend = open_backend("cpu", threads=threads)
        bench = Bench(backend, SEED)
        layer = bench.layer(outputs, 512, Dtype.Q4_K, activations="int8")
        x = bench.random.standard_normal((rows, 512), np.float32)
        found.append(_linear(bench, layer, x, outputs))
        backend.close()
    assert all(np.array_equal(found[0], other) for other in found[1:])
