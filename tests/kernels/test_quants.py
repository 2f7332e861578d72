"""Our own dequantisation gives the same bits as the `gguf` package's."""

from __future__ import annotations

import gguf
import numpy as np
import pytest
from flatwake_kernels.dtype import Dtype, narrow_bf16, widen_bf16
from flatwake_kernels.reference.linear import quantise_int8
from flatwake_kernels.reference.quants import dequantise
from gguf.quants import dequantize
from op_bench import QUANTS, SEED, random_weight


@pytest.mark.parametrize("dtype", QUANTS, ids=lambda d: d.name)
def test_dequantised_weights_are_those_of_gguf(dtype: Dtype) -> None:
    print("seed", SEED)
    data = random_weight(np.random.default_rng(SEED), 7, 3 * dtype.block, dtype)
    ours = dequantise(data, dtype, 3 * dtype.block)
    assert np.array_equal(ours, dequantize(data, gguf.GGMLQuantizationType(int(dtype))))


def test_bfloat16_rounds_half_to_even() -> None:
    values = np.array([1.0, 1 + 2**-8, 1 + 3 * 2**-8, -1 - 2**-8, np.inf, np.nan], np.float32)
    back = widen_bf16(narrow_bf16(values))
    assert back[:5].tolist() == [1.0, 1.0, 1 + 2**-6, -1.0, np.inf]
    assert np.isnan(back[5])


def test_int8_activations_round_half_to_even_within_their_own_block() -> None:
    x = np.zeros((2, 64), np.float32)
    x[0, :4] = [127.0, 0.5, 1.5, -2.5]
    x[0, 40] = -2.54
    integers, scales = quantise_int8(x)
    assert integers[0, 0, :4].tolist() == [127, 0, 2, -2]
    assert integers[0, 1, 8] == -127
    assert scales[0].tolist() == [1.0, pytest.approx(0.02, rel=1e-6)]
    assert not integers[1].any()
    assert not scales[1].any()
