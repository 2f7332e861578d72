"""Helm, as the test cluster's tool builds it or as it is installed."""

import functools
import os
import shutil
import subprocess
from pathlib import Path

import pytest

CHART = Path(__file__).parents[2] / "charts/flatwake"


@functools.cache
def program() -> str:
    cache = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    folder = Path(os.environ.get("CLUSTER_DIR") or f"{cache}/flatwake/cluster") / "bin"
    found = shutil.which("helm", path=f"{folder}{os.pathsep}{os.environ['PATH']}")
    if found is None:
        if os.environ.get("CI") == "true":
            pytest.fail("helm is missing: `make cluster-build` builds it")
        pytest.skip("helm is missing: `make cluster-build` builds it")
    return found


def helm(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([program(), *words], capture_output=True, text=True, check=False)


def render(*values: str, release: str = "flatwake", show: str | None = None) -> str:
    words = ["template", release, str(CHART), *(f"--set={value}" for value in values)]
    said = helm(*words, *(["--show-only", show] if show else []))
    assert said.returncode == 0, said.stderr
    return said.stdout
