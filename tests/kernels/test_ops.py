"""Every op of every library that is built agrees with the reference."""

from __future__ import annotations

import pytest
from flatwake_kernels.backend import Backend
from op_cases import CASES, Case, compare, run


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_an_op_agrees_with_the_reference(case: Case, backend: Backend, reference: Backend) -> None:
    print("seed", case.seed)
    compare(case, run(case, backend), run(case, reference))
