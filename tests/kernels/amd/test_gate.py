"""The AMD gate sees what it is there to see, and the committed tables are whole."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import device_code
import pytest
from amd_gate import TABLE, faults, read_floors, render
from device_code import AMD_TARGETS, CodeObject, Compiler, Resources

GOOD = Resources("k", vgprs=40, sgprs=20, agprs=0, scratch=0, vgpr_spills=0, sgpr_spills=0,
                 lds=1024, occupancy=12)  # fmt: skip
FLOORS = {"k": dict.fromkeys(AMD_TARGETS, 12)}


def _object(resources: Resources, flat: int = 0) -> CodeObject:
    return CodeObject("source", "gfx1100", Path(__file__), (resources,), flat)


def test_a_kernel_within_its_bounds_passes() -> None:
    assert list(faults([_object(GOOD)], FLOORS)) == []


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"vgpr_spills": 3}, "k for gfx1100: 3 VGPRs and 0 SGPRs are spilled"),
        ({"sgpr_spills": 2}, "0 VGPRs and 2 SGPRs are spilled"),
        ({"scratch": 16}, "16 bytes of private memory a lane"),
        ({"lds": 65540}, "65540 bytes of LDS, more than 65536"),
        ({"occupancy": 11}, "11 waves a SIMD, its floor is 12"),
        ({"kernel": "new"}, "no floor in occupancy.csv"),
    ],
)
def test_each_fault_is_named(change: dict[str, int], message: str) -> None:
    found = list(faults([_object(replace(GOOD, **change))], FLOORS))  # type: ignore[arg-type]
    assert len(found) == 1
    assert message in found[0]


def test_generic_loads_are_a_fault() -> None:
    assert "2 generic loads" in next(faults([_object(GOOD, flat=2)], FLOORS))


def test_every_kernel_has_a_floor_for_every_target_that_builds_it() -> None:
    floors, reasons = read_floors()
    assert len(floors) > 100
    for kernel, values in floors.items():
        if kernel.startswith("gdn_matrix"):  # on WMMA its state finds no room in registers
            assert set(values) == {"gfx90a", "gfx942"}, kernel
        elif "_matrix_" in kernel or "_gemm_" in kernel:  # multiply-adds alone on these
            assert set(values) == set(AMD_TARGETS) - {"gfx906", "gfx908", "gfx1030"}, kernel
        else:
            assert set(values) == set(AMD_TARGETS), kernel
        assert all(v >= 1 for v in values.values()), kernel
    assert set(reasons) == set(floors)


def test_the_table_in_the_docs_has_every_kernel() -> None:
    text = TABLE.read_text()
    floors, _ = read_floors()
    missing = [k for k in floors if f"| {k} |" not in text]
    assert not missing
    assert "GPUs" in render([_object(GOOD)], "a compiler")


@pytest.fixture(scope="module")
def clang() -> Compiler:
    try:
        return device_code.find_clang()
    except device_code.BuildError as error:
        pytest.skip(str(error))


@pytest.mark.parametrize("target", ["gfx906", "gfx1100"])
def test_planted_faults_are_seen_by_the_compilers_own_account(
    target: str, clang: Compiler, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(device_code, "CACHE", tmp_path)
    planted = device_code._compile(clang, Path(__file__).parent / "planted.hip", target)
    by_name = {r.kernel: r for r in planted.resources}
    spill = by_name["planted_spill"]
    assert spill.vgpr_spills > 0
    assert spill.scratch > 0
    assert spill.vgprs <= 32
    assert spill.occupancy >= 8
    assert planted.flat >= 1
    assert by_name["planted_generic"].vgpr_spills == 0
