"""Helm, as the test cluster's tool builds it or as it is installed."""

import functools
import os
import shutil
import subprocess

from testcluster import layout, session
from testcluster.release import CHART


@functools.cache
def program() -> str:
    path = f"{layout.binaries()}{os.pathsep}{os.environ['PATH']}"
    found = shutil.which("helm", path=path)
    session.require(None if found else "helm is missing: `make cluster-build` builds it")
    return str(found)


def helm(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([program(), *words], capture_output=True, text=True, check=False)


def render(*values: str, release: str = "flatwake", show: str | None = None) -> str:
    words = ["template", release, str(CHART), *(f"--set={value}" for value in values)]
    said = helm(*words, *(["--show-only", show] if show else []))
    assert said.returncode == 0, said.stderr
    return said.stdout
