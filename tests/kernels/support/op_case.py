"""One op of one shape, run by a backend and held to the reference's results."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from flatwake_kernels.backend import Backend
from flatwake_kernels.buffer import Buffer
from flatwake_kernels.declaration import Op, Tensor
from flatwake_kernels.dtype import Dtype
from op_bench import SEED, UNWRITTEN, Bench, decode


@dataclass(frozen=True)
class Case:
    """`tolerance` is of the largest magnitude that the reference wrote; `of_state` is a state's,
    which stays float whatever the activations are."""

    name: str
    build: Callable[[Bench], Op]
    tolerance: float = 2e-6
    of_state: float | None = None

    @property
    def seed(self) -> int:
        return SEED ^ zlib.crc32(self.name.encode())


def run(case: Case, backend: Backend) -> dict[str, np.ndarray]:
    """Outputs of the case's op, by name; rows that an op may skip are left out."""
    bench = Bench(backend, case.seed)
    return run_op(case.build(bench), bench)


def run_op(op: Op, bench: Bench) -> dict[str, np.ndarray]:
    """Run one op through a plan of its own; see `run`."""
    with bench.backend.record() as plan:
        plan.add(op)
    plan.run()
    bench.check_guards()
    return outputs(op)


def outputs(op: Op) -> dict[str, np.ndarray]:
    found = {}
    for name, kind in op.fields.items():
        value = op.values.get(name)
        if isinstance(kind, Tensor) and kind.access != "in" and isinstance(value, Buffer):
            array = decode(value)
            live = op.values.get("live")
            if isinstance(live, Buffer) and kind.shape[0] == "rows":
                array = array[: int(live.read()[0])]
            found[name] = array
    return found


def compare(case: Case, found: dict[str, np.ndarray], wanted: dict[str, np.ndarray]) -> None:
    """Integers exactly, floats within the case's tolerance. Says where and by how much."""
    assert found.keys() == wanted.keys()
    for name, right in wanted.items():
        value = found[name]
        if right.dtype.kind != "f":
            assert np.array_equal(value, right), f"{case.name}: {name} (seed {case.seed})"
            continue
        value, right = value.astype(np.float64), right.astype(np.float64)
        assert np.isfinite(right).all(), f"{case.name}: the reference's {name} is not finite"
        error = np.abs(value - right)
        error[np.isnan(error)] = np.inf
        if not error.size:
            continue
        written = np.abs(right[right != UNWRITTEN])
        tolerance = case.tolerance if name != "state" or case.of_state is None else case.of_state
        limit = tolerance * max(float(written.max(initial=0)), 1e-30)
        at = np.unravel_index(int(error.argmax()), error.shape)
        assert error.max() <= limit, (
            f"{case.name}: {name}{list(map(int, at))} is {value[at]:.8g}, wanted {right[at]:.8g}, "
            f"off by {error.max():.3g}, at most {limit:.3g} (seed {case.seed})"
        )


def rounding(dtype: Dtype, exact: float = 2e-6) -> float:
    """The tolerance of results rounded to `dtype`: one unit in the last place."""
    return {Dtype.F32: exact, Dtype.F16: 1e-3, Dtype.BF16: 8e-3}[dtype]
