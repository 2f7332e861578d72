"""A HIP runtime without a device, for the tests of what drives one."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from flatwake_kernels.backend import BackendUnavailable
from flatwake_kernels.library import find_library


@pytest.fixture(scope="session")
def hip_library() -> Path:
    """libflatwake_hip; CI has it built."""
    try:
        return find_library("hip")
    except BackendUnavailable:
        if "CI" in os.environ:
            raise
        pytest.skip("not built: install clang-19, lld-19, llvm-19, then `make build`")


@pytest.fixture(scope="session")
def runtime(hip_library: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    compiler = shutil.which("g++") or shutil.which("c++")
    assert compiler, "install g++"
    path = tmp_path_factory.mktemp("runtime") / "libamdhip64.so"
    source = Path(__file__).parent / "fake_hip.cpp"
    subprocess.run(
        [compiler, "-std=c++17", "-O1", "-shared", "-fPIC", str(source), "-o", str(path)],
        check=True,
    )
    return path


@pytest.fixture
def device_file(tmp_path: Path) -> Path:
    path = tmp_path / "kfd"
    path.touch()
    return path
