"""The reference is right by itself: against formulas, known answers and its own other forms."""

from __future__ import annotations

import numpy as np
import pytest
from flatwake_kernels import ops
from flatwake_kernels.backend import Backend, KernelError, Weight
from flatwake_kernels.dtype import Dtype
from flatwake_kernels.reference.linear import Layer
from flatwake_kernels.reference.philox import gumbel, philox
from op_bench import SEED, Bench, random_weight
from op_case import run_op
from recurrent_cases import gdn


def test_philox_gives_its_authors_known_answers() -> None:
    counters = np.array([[0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344]], np.uint32)
    words = philox(0x299F31D0A4093822, counters)[0]
    assert words.tolist() == [0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1]
    zeros = philox(0, np.zeros((1, 4), np.uint32))[0]
    assert zeros.tolist() == [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]


def test_gumbel_noise_is_finite_and_has_its_mean() -> None:
    noise = np.concatenate([gumbel(SEED, position, 4099) for position in range(40)])
    assert np.isfinite(noise).all()
    assert noise.mean() == pytest.approx(0.5772, abs=0.02)


@pytest.mark.parametrize("dtype", [Dtype.F32, Dtype.Q4_1], ids=lambda d: d.name)
def test_a_row_has_the_same_bits_in_any_company(dtype: Dtype) -> None:
    print("seed", SEED)
    random = np.random.default_rng(SEED)
    layer = Layer([Weight(random_weight(random, 200, 576, dtype), dtype, 576)], "float")
    x = random.standard_normal((40, 576), np.float32)
    together = layer.apply(x)
    for count in range(1, 41):
        for start in range(0, 41 - count, 5):
            part = slice(start, start + count)
            assert np.array_equal(layer.apply(x[part]), together[part]), (count, start)


@pytest.mark.parametrize("head_map", [0, 1])
@pytest.mark.parametrize("length", [1, 63, 64, 65, 200])
def test_the_chunked_delta_rule_agrees_with_the_recurrence(
    reference: Backend, head_map: int, length: int
) -> None:
    print("seed", SEED)
    results = []
    for op in (ops.GdnStep, ops.GdnChunk):
        bench = Bench(reference, SEED)
        results.append(run_op(gdn(bench, op, [length], length, head_map=head_map), bench))
    step, chunk = results
    # The recurrence keeps the state after every row; both keep it after the last.
    assert np.abs(step["y"] - chunk["y"]).max() < 1e-5 * np.abs(step["y"]).max()
    assert np.abs(step["state"] - chunk["state"]).max() < 1e-5 * np.abs(step["state"]).max()


def test_a_layer_of_another_shape_is_refused_when_recorded(reference: Backend) -> None:
    bench = Bench(reference, SEED)
    call = ops.Linear(
        x=bench.normal(2, 64), y=bench.empty(2, 31), weight=bench.layer(32, 64, Dtype.F32),
        live=bench.ints([2]),
    )  # fmt: skip
    plan = reference.record()
    plan.add(call)
    with pytest.raises(KernelError, match=r"linear\.weight has 32 rows, .*outputs, which is 31"):
        plan.finish()


def test_a_buffer_may_be_freed_while_another_of_its_backend_lives(reference: Backend) -> None:
    before = reference.memory().allocated
    first = reference.allocate(1000, dtype=Dtype.F32)
    view = first.part(10, 20)
    del first
    assert reference.memory().allocated == before + 4000
    del view
    assert reference.memory().allocated == before
