"""Kubernetes, etcd, helm and CoreDNS, compiled from the Go module proxy."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import time
from pathlib import Path

from testcluster import archive, crds, layout, packages
from testcluster.shell import ClusterError, locked, run, say, write

GO = layout.SOURCES / "go"
FILES = ("go.mod", "go.sum", "coredns/main.go", "gpuplugin/main.go")


def kubernetes_version() -> tuple[str, str]:
    """The version that go.mod names, and its minor number: ("v1.35.4", "35")."""
    found = re.search(
        r"^\s*k8s\.io/kubernetes (v1\.(\d+)\.\d+)$", (GO / "go.mod").read_text(), re.M
    )
    assert found, "go.mod names no k8s.io/kubernetes"
    return found[1], found[2]


def link_flags() -> str:
    """Versions that the stock builds would get from their release scripts.

    Without them the binaries call themselves v0.0.0-master, which charts with a kubeVersion and
    clients that compare versions refuse, and `helm template` assumes Kubernetes 1.20.
    """
    version, minor = kubernetes_version()
    helm = re.search(r"^\s*helm\.sh/helm/v3 (v\S+)$", (GO / "go.mod").read_text(), re.M)
    assert helm, "go.mod names no helm"
    values = {
        "k8s.io/component-base/version.gitVersion": version,
        "k8s.io/component-base/version.gitMajor": "1",
        "k8s.io/component-base/version.gitMinor": minor,
        "k8s.io/component-base/version.gitTreeState": "clean",
        "helm.sh/helm/v3/internal/version.version": helm[1],
    }
    for package in ("chartutil", "lint/rules"):
        values[f"helm.sh/helm/v3/pkg/{package}.k8sVersionMajor"] = "1"
        values[f"helm.sh/helm/v3/pkg/{package}.k8sVersionMinor"] = minor
    return "-s -w " + " ".join(f"-X {name}={value}" for name, value in values.items())


def fingerprint() -> str:
    """Changes with whatever the binaries are made of."""
    digest = hashlib.sha256(packages.require_go().encode())
    digest.update(link_flags().encode())
    for name in FILES:
        digest.update((GO / name).read_bytes())
    return digest.hexdigest()


def is_built() -> bool:
    """Whether the binaries are those of these sources and, where there is one, of this Go."""
    stamp = layout.binaries() / "stamp"
    if not stamp.exists():
        return False
    return shutil.which("go") is None or stamp.read_text() == fingerprint()


def build() -> None:
    """Compile what changed. About ten minutes of processor time the first time."""
    packages.install()
    with locked(layout.work_folder() / "build.lock"):
        if not is_built():
            _compile()
        archive.make_small_images()
        crds.fetch()


def _compile() -> None:
    source, target = layout.work_folder() / "src", layout.binaries()
    # A copy, so that the build never edits the checked-in go.mod and go.sum.
    for name in FILES:
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(GO / name, source / name)
    target.mkdir(parents=True, exist_ok=True)
    say(
        f"compiling Kubernetes {kubernetes_version()[0]}, etcd, helm and CoreDNS;"
        " 6 to 15 minutes the first time"
    )
    began = time.monotonic()
    env = dict(os.environ, CGO_ENABLED="0", GOFLAGS="-mod=mod -buildvcs=false", GOWORK="off")
    # "tool" is every main package that go.mod's tool block names.
    run(
        *("nice", "-n", "10", "go", "build", "-trimpath", "-ldflags", link_flags()),
        *("-o", f"{target}/", "tool", "./coredns", "./gpuplugin"),
        env=env,
        cwd=source,
    )
    (target / "server").replace(target / "etcd")  # named after its import path
    write(target / "stamp", fingerprint())
    say(f"compiled in {time.monotonic() - began:.0f} s into {target}")


def require(program: str) -> Path:
    """The path of a compiled program; a ClusterError says how to make it."""
    path = layout.binaries() / program
    if not path.exists():
        raise ClusterError(f"{program} isn't built: `make cluster-build` builds it")
    return path
