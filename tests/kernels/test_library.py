"""A kernel library refuses clearly: another layout, what it lacks, what a caller got wrong."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from flatwake_kernels import ops
from flatwake_kernels.backend import (
    Backend,
    BackendUnavailable,
    KernelError,
    MemoryShort,
    Weight,
)
from flatwake_kernels.backends import open_backend, unavailable
from flatwake_kernels.declaration import LinearHandle
from flatwake_kernels.dtype import Dtype
from flatwake_kernels.header import main as header_main
from flatwake_kernels.library import Library, check_layout, find_library
from op_bench import SEED, Bench

HEADER = Path(__file__).parents[2] / "kernels/include/flatwake/ops.h"


@pytest.fixture
def cpu() -> Iterator[Backend]:
    backend = open_backend("cpu")
    yield backend
    backend.close()


def _layout() -> str:
    library = Library("cpu", find_library("cpu"))
    text: str = library._dll.fw_layout().decode()
    return text


def test_the_header_is_the_one_that_python_declares(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["header", "--check", str(HEADER)])
    assert header_main() == 0


def test_another_offset_is_refused_by_the_field_s_name() -> None:
    lines = _layout().splitlines()
    index = next(i for i, line in enumerate(lines) if line.startswith("fw_linear_params bias"))
    struct, field, offset, size = lines[index].split()
    lines[index] = f"{struct} {field} {int(offset) + 8} {size}"
    with pytest.raises(BackendUnavailable, match=r"fw_linear_params\.bias is \(32, 8\).*\(24, 8\)"):
        check_layout("lib.so", "\n".join(lines))


def test_a_missing_field_and_an_unknown_struct_are_refused() -> None:
    text = _layout()
    with pytest.raises(BackendUnavailable, match=r"fw_sampling\.top_p is None there"):
        check_layout("lib.so", text.replace("fw_sampling top_p 12 4\n", ""))
    with pytest.raises(BackendUnavailable, match=r"fw_new\.field is \(0, 4\) there, None here"):
        check_layout("lib.so", text + "fw_new field 0 4\n")


def test_a_library_that_was_not_built_says_how_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FLATWAKE_LIBRARY_DIR", str(tmp_path))
    message = unavailable("cpu")
    assert message is not None
    assert f"libflatwake_cpu.so is not in {tmp_path}" in message
    assert "make build" in message


def test_a_file_that_is_no_library_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "libflatwake_cpu.so").write_text("not a library")
    monkeypatch.setenv("FLATWAKE_LIBRARY_DIR", str(tmp_path))
    assert "does not load" in (unavailable("cpu") or "")


@pytest.mark.skipif(shutil.which("cc") is None, reason="builds a library of another version")
def test_another_abi_version_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from flatwake_kernels.library import _SIGNATURES

    source = tmp_path / "old.c"
    stubs = "".join(f"int {symbol}(void) {{ return 99; }}\n" for symbol in _SIGNATURES)
    source.write_text(stubs)
    target = tmp_path / "libflatwake_cpu.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-w", "-o", target, source], check=True)
    monkeypatch.setenv("FLATWAKE_LIBRARY_DIR", str(tmp_path))
    assert "speaks version 99 of the kernel ABI, not 1" in (unavailable("cpu") or "")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"isa": "mmx"}, r"isa=mmx is unknown: auto\|.*plain"),
        ({"speed": "high"}, r"setting 'speed=high' is unknown: isa=.* spins=N"),
        ({"spins": "many"}, r"setting 'spins=many' is unknown"),
    ],
)
def test_an_unknown_setting_is_refused(settings: dict[str, str], message: str) -> None:
    with pytest.raises(KernelError, match=message):
        open_backend("cpu", settings=settings)


def test_another_device_and_impossible_threads_are_refused() -> None:
    with pytest.raises(KernelError, match="one CPU device, 0, not 3"):
        open_backend("cpu", device=3)
    with pytest.raises(KernelError, match="threads is -1, wanted 0 to"):
        open_backend("cpu", threads=-1)


def test_a_layer_of_another_shape_is_refused_when_recorded(any_backend: Backend) -> None:
    bench = Bench(any_backend, SEED)
    plan = any_backend.record()
    plan.add(_linear(bench, bench.layer(32, 64, Dtype.F32), outputs=31))
    with pytest.raises(KernelError, match=r"linear.*weight.*32.*31"):
        plan.finish()


def _linear(bench: Bench, weight: LinearHandle, outputs: int) -> ops.Linear:
    return ops.Linear(
        x=bench.normal(2, 64), y=bench.empty(2, outputs), weight=weight, live=bench.ints([2])
    )


@pytest.mark.parametrize(
    ("weight", "message"),
    [
        (Weight(np.zeros((4, 18), np.uint8), Dtype.Q4_0, 64), "row of 64 columns has 18 bytes"),
        (Weight(np.zeros((4, 40), np.uint8), Dtype.Q4_1, 33), "33 columns do not fill Q4_1"),
        (
            Weight(np.zeros((2, 8), np.uint8), Dtype.F32, 2, np.array([0, 2], np.int32)),
            r"permutation\[1\] is 2 of 2 rows",
        ),
    ],
)
def test_a_weight_that_cannot_be_is_refused(cpu: Backend, weight: Weight, message: str) -> None:
    with pytest.raises(KernelError, match=message):
        cpu.prepare_linear([weight], "float")


def test_segments_of_different_widths_are_refused(cpu: Backend) -> None:
    views = [Weight(np.zeros((1, 4 * n), np.uint8), Dtype.F32, n) for n in (4, 8)]
    with pytest.raises(KernelError, match="segments have 4 and 8 columns"):
        cpu.prepare_linear(views, "float")


def test_more_memory_than_there_can_be_is_refused(cpu: Backend) -> None:
    with pytest.raises(MemoryShort, match="bytes of memory are not to be had"):
        cpu.allocate(1 << 60, dtype=Dtype.I8)


def test_untouched_memory_costs_nothing_and_is_given_back(cpu: Backend) -> None:
    before, resident = cpu.memory().allocated, _resident()
    pool = cpu.allocate(1 << 30, dtype=Dtype.I8)
    assert cpu.memory().allocated == before + (1 << 30)
    assert _resident() - resident < 64 << 20
    assert not pool.head(4096).read().any()
    del pool
    assert cpu.memory().allocated == before
    assert cpu.memory().peak >= 1 << 30


def _resident() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096


def test_the_heartbeat_is_stamped_after_every_op() -> None:
    stamp = ctypes.c_uint64()
    backend = open_backend("cpu", heartbeat=ctypes.addressof(stamp))
    bench = Bench(backend, SEED)
    with backend.record() as plan:
        plan.add(_linear(bench, bench.layer(32, 64, Dtype.F32), outputs=32))
    assert stamp.value == 0
    before = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
    plan.run()
    assert before <= stamp.value <= time.clock_gettime_ns(time.CLOCK_MONOTONIC)
    backend.close()


def test_a_trace_has_the_seconds_of_each_call(cpu: Backend) -> None:
    bench = Bench(cpu, SEED)
    layer = bench.layer(32, 64, Dtype.F32)
    with cpu.record() as plan:
        plan.add(_linear(bench, layer, outputs=32))
        plan.add(_linear(bench, layer, outputs=32))
    plan.capture()
    seconds = plan.trace()
    assert len(seconds) == 2
    assert all(0 < s < 5 for s in seconds)


def test_many_plans_run_in_turn_over_one_scratch(cpu: Backend) -> None:
    bench = Bench(cpu, SEED)
    layer = bench.layer(32, 512, Dtype.Q4_1, activations="int8")
    runs = []
    for rows in (1, 128, 4):
        y = bench.empty(rows, 32)
        x = bench.given(np.ones((rows, 512), np.float32))
        with cpu.record() as plan:
            plan.add(ops.Linear(x=x, y=y, weight=layer, live=bench.ints([rows])))
        runs.append((plan, y))
    for plan, _ in (*runs, *runs):
        plan.run()
    wanted = runs[0][1].read()[0]
    assert all(np.array_equal(row, wanted) for _, y in runs for row in y.read())


def test_every_op_is_supported(cpu: Backend) -> None:
    assert [op.name for op in ops.OPS if not cpu.supports(op)] == []


def test_a_prepared_layer_leaves_the_file_alone(cpu: Backend) -> None:
    """The library holds its own copy, so the file's pages may go."""
    bench = Bench(cpu, SEED)
    weight = bench.weight(32, 512, Dtype.Q4_K)
    before = cpu.memory().allocated
    layer = cpu.prepare_linear([weight], "int8")
    assert 0 < layer.bytes <= cpu.memory().allocated - before
    assert layer.bytes <= 1.1 * weight.data.nbytes
    del layer
    assert cpu.memory().allocated == before


def test_a_backend_tells_what_the_machine_gives(any_backend: Backend) -> None:
    assert any_backend.read_rate(1 << 20, 2) > 0
    for activations in ("float", "int8"):
        rate = any_backend.product_rate(activations)
        assert rate is None if any_backend.name == "reference" else rate > 0


def test_no_repeat_is_no_measurement(cpu: Backend) -> None:
    with pytest.raises(KernelError, match="at least one repeat"):
        cpu.read_rate(1 << 20, 0)
    with pytest.raises(KernelError, match="cannot allocate 0 bytes"):
        cpu.read_rate(0)
