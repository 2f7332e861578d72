"""libflatwake_hip without a GPU: it loads, says what is missing, and drives a runtime as it should.

The runtime is fake_hip.cpp, so nothing is computed; each test is a process of its own, since a
runtime is opened once.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

SUPPORT = Path(__file__).parents[1] / "support"
# ELF flags of the processors, from LLVM's AMDGPU documentation.
MACHINES = {"gfx906": 0x2F, "gfx90a": 0x3F, "gfx942": 0x4C, "gfx1030": 0x36, "gfx1100": 0x41,
            "gfx1201": 0x4E}  # fmt: skip


pytestmark = pytest.mark.usefixtures("hip_library")


def _python(code: str, **variables: object) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, **{k: str(v) for k, v in variables.items()}}
    environment["PYTHONPATH"] = os.pathsep.join([str(SUPPORT), *filter(None, sys.path)])
    return subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False,
        timeout=120,
    )  # fmt: skip


WHY = """
from flatwake_kernels.backends import unavailable
print(unavailable("hip"))
"""


def test_a_missing_runtime_is_named() -> None:
    done = _python(WHY, FLATWAKE_HIP_RUNTIME="/nowhere/libamdhip64.so.6")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("the HIP runtime is missing")
    assert "/nowhere/libamdhip64.so.6" in done.stdout


def test_a_missing_driver_is_named(runtime: Path, tmp_path: Path) -> None:
    done = _python(WHY, FLATWAKE_HIP_RUNTIME=runtime, FLATWAKE_KFD=tmp_path / "absent")
    assert "there is no AMD GPU here" in done.stdout
    assert "amd.com/gpu" in done.stdout


@pytest.mark.skipif(os.getuid() != 0, reason="another user is needed; root can become one")
def test_a_group_that_is_missing_is_named(runtime: Path, device_file: Path) -> None:
    os.chown(device_file, 0, 109)
    device_file.chmod(0o660)
    for folder in (device_file.parent, runtime.parent):
        for parent in (folder, *folder.parents[:3]):
            parent.chmod(parent.stat().st_mode | 0o055)
    code = """
import ctypes, os, sys
from flatwake_kernels.library import Library, find_library
library = Library("hip", find_library("hip"))
os.setgroups([]); os.setgid(65534); os.setuid(65534)
library.device_count()
"""
    done = _python(code, FLATWAKE_HIP_RUNTIME=runtime, FLATWAKE_KFD=device_file)
    assert "belongs to group 109" in done.stderr, done.stderr
    assert "renderGroups" in done.stderr


def test_no_device_and_an_unknown_device_are_told_apart(runtime: Path, device_file: Path) -> None:
    given = {"FLATWAKE_HIP_RUNTIME": runtime, "FLATWAKE_KFD": device_file}
    done = _python(WHY, FAKE_HIP_DEVICES=0, **given)
    assert "HIP finds no device (no ROCm-capable device is detected)" in done.stdout
    code = """
from flatwake_kernels.backends import open_backend
open_backend("hip")
"""
    done = _python(code, FAKE_HIP_ARCHITECTURE="gfx803", **given)
    assert "is a gfx803, for which no kernels were built" in done.stderr
    assert "gfx906, gfx908" in done.stderr


STEP = """
import ctypes, json
from dense_step import dense_step
from flatwake_kernels.backends import open_backend
from flatwake_kernels.dtype import Dtype
backend = open_backend("hip")
step = dense_step(backend, 1, Dtype.BF16)
launches, nodes = ctypes.c_int32(), ctypes.c_int32()
if {capture}:
    step.plan.capture()
ctypes.CDLL(str(backend.library.path)).fw_plan_launches(
    step.plan._handle, ctypes.byref(launches), ctypes.byref(nodes)
)
open({log!r}, "a").write("RUNS\\n")
for _ in range(3):
    step.plan.run()
    event = backend.event()
    event.record()
    event.wait()
open({log!r}, "a").write("DONE\\n")
device = backend.device
print(json.dumps([launches.value, nodes.value, device.architecture, device.wave]))
"""


def _step(
    runtime: Path, device_file: Path, tmp_path: Path, capture: bool, architecture: str
) -> tuple[list[object], list[str], list[str]]:
    """(what the process printed, calls before the first run, calls of three runs)."""
    log = tmp_path / "log"
    code = STEP.format(capture=capture, log=str(log))
    done = _python(
        code, FLATWAKE_HIP_RUNTIME=runtime, FLATWAKE_KFD=device_file, FAKE_HIP_LOG=log,
        FAKE_HIP_ARCHITECTURE=architecture,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    lines = log.read_text().splitlines()
    at, end = lines.index("RUNS"), lines.index("DONE")
    printed: list[object] = json.loads(done.stdout)
    return printed, lines[:at], lines[at + 1 : end]


@pytest.mark.parametrize("architecture", MACHINES)
def test_the_device_gets_its_own_code(
    architecture: str, runtime: Path, device_file: Path, tmp_path: Path
) -> None:
    printed, before, _ = _step(runtime, device_file, tmp_path, False, architecture)
    loaded = {line for line in before if line.startswith("hipModuleLoadData")}
    assert loaded == {f"hipModuleLoadData {MACHINES[architecture]}"}
    wave = 64 if architecture.startswith("gfx9") else 32
    assert printed[2:] == [architecture, wave]


def test_a_step_is_one_graph_and_one_wait(runtime: Path, device_file: Path, tmp_path: Path) -> None:
    printed, _, runs = _step(runtime, device_file, tmp_path, True, "gfx1100")
    launches, nodes = printed[:2]
    assert launches == nodes
    # Nine nodes a layer that shares nothing, and seven around them; see test_launches for models.
    assert isinstance(nodes, int)
    assert nodes <= 9 * 2 + 7
    calls = Counter(line.split()[0] for line in runs)
    assert calls == {"hipGraphLaunch": 3, "hipEventRecord": 3, "hipEventQuery": 3}, calls


def test_a_step_without_a_graph_launches_what_was_recorded(
    runtime: Path, device_file: Path, tmp_path: Path
) -> None:
    printed, _, runs = _step(runtime, device_file, tmp_path, False, "gfx906")
    calls = Counter(line.split()[0] for line in runs)
    assert calls["hipModuleLaunchKernel"] == 3 * int(str(printed[0]))
    assert not calls["hipMalloc"], "nothing is allocated in a step"
    assert not calls["hipStreamSynchronize"]


def test_a_failed_call_has_its_name_and_text(runtime: Path, device_file: Path) -> None:
    code = """
from dense_step import dense_step
from flatwake_kernels.backends import open_backend
from flatwake_kernels.dtype import Dtype
dense_step(open_backend("hip"), 1, Dtype.BF16).plan.run()
"""
    done = _python(
        code, FLATWAKE_HIP_RUNTIME=runtime, FLATWAKE_KFD=device_file,
        FAKE_HIP_FAIL="hipModuleLaunchKernel",
    )  # fmt: skip
    assert "hipModuleLaunchKernel failed: a planted failure (999)" in done.stderr


def test_too_little_memory_says_how_much_there_is(runtime: Path, device_file: Path) -> None:
    code = """
from flatwake_kernels.backends import open_backend
from flatwake_kernels.dtype import Dtype
open_backend("hip").allocate(9 << 30, dtype=Dtype.I8)
"""
    done = _python(code, FLATWAKE_HIP_RUNTIME=runtime, FLATWAKE_KFD=device_file)
    assert "no 9663.7 MB for this: 6442.5 MB of 8589.9 MB are free" in done.stderr
