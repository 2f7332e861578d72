"""Integer products are exact to the largest that a format can hold, and so is what scales them."""

from __future__ import annotations

import numpy as np
import pytest
from flatwake_kernels import ops
from flatwake_kernels.backend import Backend, Weight
from flatwake_kernels.dtype import Dtype
from flatwake_kernels.reference.quants import dequantise
from op_bench import SEED, Bench

COLUMNS = 512
EXTREMES = [0x00, 0xFF, 0x7F, 0x80]
"""Bytes of quants: every format's least and largest are among them."""


def _weights(dtype: Dtype, byte: int) -> np.ndarray:
    """17 rows whose scales are 1 and whose quants are all of one byte; minimums are 0."""
    scale = list(np.float16(1).tobytes())
    block = {
        Dtype.Q4_0: scale + [byte] * 16,
        Dtype.Q4_1: [*scale, 0, 0] + [byte] * 16,
        Dtype.Q8_0: scale + [byte] * 32,
        Dtype.Q6_K: [byte] * 192 + [1] * 16 + scale,
    }[dtype]
    return np.tile(np.array(block, np.uint8), (17, COLUMNS // dtype.block))


@pytest.mark.parametrize("byte", EXTREMES)
@pytest.mark.parametrize(
    "dtype", [Dtype.Q4_0, Dtype.Q4_1, Dtype.Q8_0, Dtype.Q6_K], ids=lambda d: d.name
)
@pytest.mark.parametrize("rows", [1, 3, 8, 19])
def test_the_largest_sums_are_exact(backend: Backend, dtype: Dtype, byte: int, rows: int) -> None:
    print("seed", SEED)
    bench = Bench(backend, SEED)
    data = _weights(dtype, byte)
    layer = backend.prepare_linear([Weight(data, dtype, COLUMNS)], "int8")
    x = bench.random.integers(-127, 128, (rows, COLUMNS)).astype(np.float32)
    # Of 127 as the largest of each block: then its activations' scale is 1.
    x[0], x[-1, ::32] = -127, 127
    y = bench.empty(rows, 17)
    with backend.record() as plan:
        plan.add(ops.Linear(x=bench.given(x), y=y, weight=layer, live=bench.ints([rows])))
    plan.run()
    assert np.array_equal(y.read()[[0, -1]], (x @ dequantise(data, dtype, COLUMNS).T)[[0, -1]])


def test_a_scale_s_last_bit_is_kept(backend: Backend) -> None:
    """One block: its sum times the weight's scale times the activations', each rounded once."""
    print("seed", SEED)
    bench = Bench(backend, SEED)
    random = bench.random
    data = np.zeros((64, 34), np.uint8)
    scales = (random.standard_normal(64) * 2.0 ** random.integers(-14, 8, 64)).astype(np.float16)
    data[:, :2] = scales.view(np.uint8).reshape(64, 2)
    quants = random.integers(-128, 128, (64, 32), np.int8)
    data[:, 2:] = quants.view(np.uint8)
    layer = backend.prepare_linear([Weight(data, Dtype.Q8_0, 32)], "int8")
    x = random.integers(-127, 128, (1, 32)).astype(np.float32)
    x[0, 0] = 127
    y = bench.empty(1, 64)
    with backend.record() as plan:
        plan.add(ops.Linear(x=bench.given(x), y=y, weight=layer, live=bench.ints([1])))
    plan.run()
    sums = quants.astype(np.int64) @ x[0].astype(np.int64)
    assert np.array_equal(y.read()[0], (sums * scales.astype(np.float64)).astype(np.float32))
