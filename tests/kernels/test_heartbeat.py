"""A slow step stamps as it goes, so that it is told from a hung one."""

from __future__ import annotations

import ctypes
import time

import numpy as np
import pytest
from flatwake_kernels import ops
from flatwake_kernels.backends import BackendName, open_backend
from flatwake_kernels.dtype import Dtype


@pytest.mark.parametrize("name", ["reference", "cpu"])
def test_an_op_stamps_the_heartbeat(name: BackendName) -> None:
    stamp = ctypes.c_uint64(0)
    backend = open_backend(name, heartbeat=ctypes.addressof(stamp))
    x = backend.allocate(2, 32, dtype=Dtype.F32)
    index = backend.allocate(1, dtype=Dtype.I32)
    index.write(np.array([1], np.int32))
    with backend.record() as plan:
        plan.add(ops.GatherRows(x=x, y=backend.allocate(1, 32, dtype=Dtype.F32), index=index))
    before = time.monotonic_ns()
    plan.run()
    assert before <= stamp.value <= time.monotonic_ns()
    backend.close()
