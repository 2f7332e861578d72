"""Every op of the HIP kernels, emulated, agrees with the reference."""

from __future__ import annotations

import pytest
from flatwake_kernels.backend import Backend, KernelError
from gpu_cases import CASES, REFUSED
from op_case import Case, compare, run


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_an_op_agrees_with_the_reference(case: Case, backend: Backend, reference: Backend) -> None:
    print("seed", case.seed)
    compare(case, run(case, backend), run(case, reference))


@pytest.mark.parametrize("case", REFUSED, ids=lambda c: c.name)
def test_what_is_not_built_is_refused_by_name(case: Case, backend: Backend) -> None:
    with pytest.raises(KernelError, match="not built"):
        run(case, backend)
