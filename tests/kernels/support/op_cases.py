"""One case an op and shape: it serves every backend, for correctness and for row independence.

To add a case: write a builder that takes a Bench and returns the op, and yield it from the module
of its kind. The builder runs once a backend with the same random numbers.
"""

from __future__ import annotations

from attention_cases import attention_cases
from linear_cases import linear_cases
from op_case import Case
from recurrent_cases import recurrent_cases
from row_cases import row_cases

CASES: tuple[Case, ...] = (
    *row_cases(),
    *linear_cases(),
    *attention_cases(),
    *recurrent_cases(),
)
