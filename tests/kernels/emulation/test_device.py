"""Rows alone and in company, replays, memory: what a device must hold, on the emulation."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

import numpy as np
import pytest
from device_checks import CHECKS
from flatwake_kernels.backend import Backend, BackendUnavailable, KernelError
from flatwake_kernels.backends import open_backend
from fused import FEW, WIDE, combine_then_gate, product_norm_product, step_then_norm
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


@pytest.mark.parametrize("wave", ["32", "64"])
def test_calls_are_joined_unless_something_reads_between_them(wave: str) -> None:
    """A layer, a norm, its product (and its convolution), a norm: 4 calls, or 5."""
    joined, each = (
        open_backend("emulation", settings={"wave": wave, "fuse": fuse}) for fuse in ("1", "0")
    )
    kinds = (("linear", 4), ("gate_up", 4), ("conv", 5))
    for sizes, (kind, calls) in product((WIDE, FEW), kinds):
        found = product_norm_product(joined, [1] * 5, kind, sizes, apart=False)
        plain = product_norm_product(each, [1] * 5, kind, sizes, apart=False)
        read = product_norm_product(joined, [1] * 5, kind, sizes, apart=True)
        assert (found.launches, plain.launches, read.launches) == (3, calls, calls + 1), kind
        for name, values in plain.values.items():
            assert np.array_equal(read.values[name], values), (kind, name)
    gated = [combine_then_gate(b, apart=a) for b, a in ((joined, False), (joined, True))]
    assert [g.launches for g in gated] == [1, 2]
    assert np.array_equal(gated[0].values["y"], gated[1].values["y"])
    steps = [
        step_then_norm(b, [1, 2], apart=a)
        for b, a in ((joined, False), (each, False), (joined, True))
    ]
    assert [s.launches for s in steps] == [1, 2, 3]
    wide = step_then_norm(joined, [1], value_dim=160, key_dim=8, apart=False)
    assert wide.launches == 2, "a head's columns are several blocks'"
    joined.close()
    each.close()


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
