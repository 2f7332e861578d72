"""The HIP kernels on the CPU, for waves of 32 and of 64 lanes, in an order that a seed shuffles."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from flatwake_kernels.backend import Backend
from flatwake_kernels.backends import open_backend
from op_bench import SEED


@pytest.fixture(scope="session", params=["32", "64"], ids=["wave32", "wave64"])
def backend(request: pytest.FixtureRequest) -> Iterator[Backend]:
    settings = {"wave": request.param, "seed": str(SEED % 10007)}
    backend = open_backend("emulation", settings=settings)
    yield backend
    backend.close()
