"""A HIP runtime without a device, for the tests of what drives one."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def runtime(tmp_path_factory: pytest.TempPathFactory) -> Path:
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
