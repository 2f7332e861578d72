"""A whole decode step of a small dense model, emulated: the reference's tokens, step after step."""

from __future__ import annotations

import numpy as np
import pytest
from dense_step import STARTS, dense_step
from flatwake_kernels.backend import Backend
from flatwake_kernels.dtype import Dtype
from op_bench import SEED

STEPS = 6


@pytest.mark.parametrize("rows", [4, 8])
def test_a_dense_model_gives_the_references_tokens(
    rows: int, backend: Backend, reference: Backend
) -> None:
    print("seed", SEED)
    wanted = dense_step(reference, SEED, Dtype.F32, rows)
    found = dense_step(backend, SEED, Dtype.F32, rows)
    found.plan.capture()
    for step in range(STEPS):
        for each in (wanted, found):
            each.plan.run()
            each.bench.check_guards()
        error = np.abs(found.logits.read() - wanted.logits.read())[: len(STARTS)].max()
        assert error < 2e-5, (step, error)
        assert found.next_id.read().tolist() == wanted.next_id.read().tolist(), step
        assert np.abs(found.chosen.read() - wanted.chosen.read()).max() < 2e-5


@pytest.mark.parametrize("dtype", [Dtype.BF16, Dtype.F16])
def test_rounded_activations_stay_near_the_reference(
    dtype: Dtype, backend: Backend, reference: Backend
) -> None:
    wanted = dense_step(reference, SEED, dtype)
    found = dense_step(backend, SEED, dtype)
    for each in (wanted, found):
        each.plan.run()
    largest = np.abs(wanted.logits.read()).max()
    error = np.abs(found.logits.read() - wanted.logits.read())[: len(STARTS)].max()
    assert error < largest * {Dtype.BF16: 0.03, Dtype.F16: 0.004}[dtype], error / largest
