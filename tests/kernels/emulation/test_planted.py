"""Faults that are planted in kernels are caught: by the emulation itself, or by the sanitizers."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

HERE = Path(__file__).parent / "planted"
KERNELS = Path(__file__).parents[3] / "kernels"
WAVES = (32, 64)
RACE = r"a race in LDS: shared\[\d+\] is (written, but read by|read, but written by)"
FAULTS = {
    "planted_missing_barrier": RACE + "|is read before it was written",
    "planted_write_race": r"a race in LDS: shared\[\d+\] is written, as it is by thread",
    "planted_reuse_race": RACE,
    "planted_lds_overrun": r"LDS index 64 outside of shared\[64\]",
    "planted_lds_unwritten": r"LDS shared\[7\] is read before it was written",
    "planted_lds_too_much": r"more brings the block to 65792 bytes of LDS, more than 65536",
    "planted_alias_race": r"a race in LDS: \w+\[\d+\] is (written, but read|read, but written) by",
    "planted_alias_too_large": "LDS array shared is larger than words, whose memory it takes",
    "planted_early_exit": "a barrier that 1 of 64 threads never reach",
    "planted_unaligned": "no multiple of 16",
    "planted_divergent_wave": "a wave operation that only",
}
OVERRUNS = {"planted_overrun": "WRITE of size 4", "planted_read_overrun": "READ of size 4"}


def _build(folder: Path, *flags: str) -> Path:
    compiler = shutil.which("g++") or shutil.which("c++")
    assert compiler, "the emulation is built by a C++ compiler: install g++"
    common = [compiler, "-std=c++17", "-O1", "-g", *flags, f"-I{KERNELS}",
              f"-I{KERNELS / 'include'}", f"-I{KERNELS / 'hip'}"]  # fmt: skip
    objects = []
    for wave in WAVES:
        target = folder / f"planted{wave}.o"
        subprocess.run(
            [*common, "-DFW_EMULATION", f"-DFW_WAVE={wave}", "-x", "c++", "-c",
             str(HERE / "planted.hip"), "-o", str(target)],
            check=True,
        )  # fmt: skip
        objects.append(str(target))
    own = [str(KERNELS / "emulation" / f"{n}.cpp") for n in ("machine", "fiber")]
    half = str(KERNELS / "hip" / "runtime" / "half.cpp")
    program = folder / "planted"
    subprocess.run(
        [*common, str(HERE / "planted.cpp"), *own, half, *objects, "-o", str(program)], check=True
    )
    return program


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return _build(tmp_path_factory.mktemp("planted"))


@pytest.fixture(scope="module")
def sanitized(tmp_path_factory: pytest.TempPathFactory) -> Path:
    flags = ("-fsanitize=address,undefined", "-fno-omit-frame-pointer")
    return _build(tmp_path_factory.mktemp("sanitized"), *flags)


def _run(program: Path, name: str, wave: int, seed: int) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(program), name, str(wave), str(seed)],
        capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip


@pytest.mark.parametrize("wave", WAVES)
@pytest.mark.parametrize("which", ["program", "sanitized"])
def test_a_right_kernel_runs(which: str, wave: int, request: pytest.FixtureRequest) -> None:
    done = _run(request.getfixturevalue(which), "planted_nothing", wave, 1)
    assert (done.returncode, done.stdout.strip()) == (0, "4032"), done.stderr


@pytest.mark.parametrize("wave", WAVES)
@pytest.mark.parametrize("name", FAULTS)
def test_a_planted_fault_is_caught_and_named(program: Path, name: str, wave: int) -> None:
    for seed in range(3):  # whatever the order of the waves
        done = _run(program, name, wave, seed)
        assert done.returncode == 1, (name, seed, done.stdout)
        assert f"{name}, wave {wave}, block" in done.stdout

        assert re.search(FAULTS[name], done.stdout), (seed, done.stdout)


@pytest.mark.parametrize("wave", WAVES)
@pytest.mark.parametrize("name", OVERRUNS)
def test_the_sanitizer_sees_an_overrun(sanitized: Path, name: str, wave: int) -> None:
    done = _run(sanitized, name, wave, 1)
    assert done.returncode != 0
    assert "heap-buffer-overflow" in done.stderr
    assert OVERRUNS[name] in done.stderr
