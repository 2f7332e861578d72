"""The package as pip builds it."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_without_a_compiler_it_still_installs(tmp_path: Path) -> None:
    """The reference backend serves then, as `flatwake doctor` says."""
    nowhere = {"CC": "/nonexistent/cc", "CXX": "/nonexistent/c++"}
    build = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"]
    subprocess.run(
        [*build, f"--config-settings=build-dir={tmp_path}/build", "--wheel-dir", tmp_path, ROOT],
        env={**os.environ, **nowhere},
        check=True,
        timeout=200,
    )
    (wheel,) = tmp_path.glob("flatwake-*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    assert "flatwake_kernels/reference/backend.py" in names
    assert "flatwake_service/cli/main.py" in names
    assert not [name for name in names if name.endswith(".so")]
