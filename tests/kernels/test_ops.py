"""Every op of every library that is built agrees with the reference."""

from __future__ import annotations

import numpy as np
import pytest
from flatwake_kernels.backend import Backend
from op_bench import UNWRITTEN
from op_case import Case, compare, run
from op_cases import CASES


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_an_op_agrees_with_the_reference(case: Case, backend: Backend, reference: Backend) -> None:
    print("seed", case.seed)
    compare(case, run(case, backend), run(case, reference))


def test_a_case_is_held_to_what_its_op_wrote() -> None:
    """Rows that an op must leave alone hold a number far above any result."""
    wanted = np.array([[0.5, -2.0], [UNWRITTEN, UNWRITTEN]], np.float32)
    case = Case("small results", lambda bench: None, tolerance=1e-3)
    compare(case, {"y": wanted + np.float32(1e-3)}, {"y": wanted})
    for at in ((0, 0), (1, 1)):
        found = wanted.copy()
        found[at] += 0.01
        with pytest.raises(AssertionError, match=r"off by 0\.01"):
            compare(case, {"y": found}, {"y": wanted})
