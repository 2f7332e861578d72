"""The shared cases as the GPU kernels run them.

Quantised weights are expanded to float16 there, so results carry its rounding; int8 activations
need quantised kernels, ranks are one, and heads are multiples of eight.
"""

from __future__ import annotations

import re
from dataclasses import replace

from op_case import Case
from op_cases import CASES as ALL

HALF = 6e-4
"""What weights rounded to float16 cost, relative to the largest result."""

_EXPANDED = re.compile(r"-Q[4568]_|-segments|-odd-columns")
_REFUSED = re.compile(r"x36$|all-reduce|Q\d_.*-(int8|narrow)|segments-int8|gate-up-chunk")


def _as_expanded(case: Case) -> Case:
    if _EXPANDED.search(case.name):
        return replace(case, tolerance=max(case.tolerance, HALF))
    return case


REFUSED = tuple(c for c in ALL if _REFUSED.search(c.name))
CASES = tuple(_as_expanded(c) for c in ALL if not _REFUSED.search(c.name))
