"""Rows alone and in company, replays, memory: what a device must hold, on the emulation."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from device_checks import CHECKS
from flatwake_kernels.backend import Backend, BackendUnavailable, KernelError
from flatwake_kernels.backends import open_backend
from op_bench import SEED


@pytest.mark.parametrize("check", CHECKS, ids=lambda c: c.__name__)
def test_device(
    check: Callable[[Backend, Backend], None], backend: Backend, reference: Backend
) -> None:
    print("seed", SEED)
    check(backend, reference)


def test_linear_layers_agree_off_the_matrix_units_too(reference: Backend) -> None:
    for wave in ("32", "64"):
        backend = open_backend("emulation", settings={"wave": wave, "matrix": "0"})
        CHECKS[0](backend, reference)
        backend.close()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"wave": "16"}, "32 or 64, not 16"),
        ({"wave": "many"}, "wave=many is no number"),
        ({"speed": "9"}, "no setting speed"),
    ],
)
def test_a_wrong_setting_is_named(settings: dict[str, str], message: str) -> None:
    with pytest.raises((KernelError, BackendUnavailable), match=message):
        open_backend("emulation", settings=settings)
