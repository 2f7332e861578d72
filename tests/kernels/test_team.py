"""The team of threads waits for items, never for threads, and never touches what is gone."""

from __future__ import annotations

import numpy as np
import pytest
from flatwake_kernels import ops
from flatwake_kernels.backend import Backend
from flatwake_kernels.backends import open_backend
from flatwake_kernels.buffer import Buffer
from flatwake_kernels.dtype import Dtype
from flatwake_kernels.plan import Plan
from op_bench import SEED, Bench


def _plan(bench: Bench, rows: int, calls: int) -> tuple[Plan, Buffer]:
    """`calls` linear ops over fresh buffers, the last into the result."""
    layer = bench.layer(64, 64, Dtype.Q8_0, activations="int8")
    x, live = bench.given(np.ones((rows, 64), np.float32)), bench.ints([rows])
    y = bench.empty(rows, 64)
    with bench.backend.record() as plan:
        for _ in range(calls):
            plan.add(ops.Linear(x=x, y=y, weight=layer, live=live))
    return plan, y


@pytest.mark.parametrize("threads", [2, 8])
def test_plans_and_buffers_may_go_right_after_a_run(threads: int) -> None:
    """More threads than processors: some always come too late, to memory that is gone."""
    print("seed", SEED)
    backend = open_backend("cpu", threads=threads)
    wanted = None
    for round_ in range(40):
        plan, y = _plan(Bench(backend, SEED), rows=1 + round_ % 3, calls=40)
        plan.run()
        found = y.read()
        wanted = found[0] if wanted is None else wanted
        assert all(np.array_equal(row, wanted) for row in found), round_
        del plan, y
    backend.close()


def test_backends_side_by_side_do_not_meet() -> None:
    print("seed", SEED)
    pair: list[Backend] = [open_backend("cpu", threads=2) for _ in range(2)]
    plans = [_plan(Bench(backend, SEED), rows=4, calls=10) for backend in pair]
    for _ in range(20):
        for plan, _y in plans:
            plan.run()
    first, second = (y.read() for _, y in plans)
    assert np.array_equal(first, second)
    for backend in pair:
        backend.close()


def test_a_closed_backend_ends_its_threads() -> None:
    def count() -> int:
        with open("/proc/self/status") as lines:
            return next(int(line.split()[1]) for line in lines if line.startswith("Threads:"))

    before = count()
    backend = open_backend("cpu", threads=5)
    assert count() == before + 4
    backend.close()
    assert count() == before
