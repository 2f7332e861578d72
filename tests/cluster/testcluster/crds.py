"""CRDs of other projects, from their Go modules: the schemas that judge what we make for them."""

from __future__ import annotations

import json
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from testcluster import layout
from testcluster.shell import ClusterError, output, say


@dataclass(frozen=True)
class Module:
    """A version of a module, the sum that Go's checksum database has for it, its CRDs' files."""

    name: str
    sum: str
    files: tuple[str, ...]


MODULES = (
    Module(
        "sigs.k8s.io/gateway-api@v1.4.0",
        "h1:ZwlNM6zOHq0h3WUX2gfByPs2yAEsy/EenYJB78jpQfQ=",
        (
            "config/crd/standard/gateway.networking.k8s.io_gateways.yaml",
            "config/crd/standard/gateway.networking.k8s.io_httproutes.yaml",
        ),
    ),
    Module(
        "sigs.k8s.io/gateway-api-inference-extension@v1.1.0",
        "h1:MqRYk+3LNUWB0MbTgTZVhmJGNDTvm8l3ze4MOlzR7MU=",
        ("config/crd/bases/inference.networking.k8s.io_inferencepools.yaml",),
    ),
    Module(
        "github.com/prometheus-operator/prometheus-operator@v0.85.0",
        "h1:M5xLCLEoaW2IJfnuCwFzzpL+jSVQu3KGT84Pye+fW8s=",
        (
            "example/prometheus-operator-crd/monitoring.coreos.com_podmonitors.yaml",
            "example/prometheus-operator-crd/monitoring.coreos.com_prometheusrules.yaml",
        ),
    ),
)


def folder() -> Path:
    return layout.work_folder() / "crds"


def paths(module: Module) -> list[Path]:
    """Where a module's CRDs are kept; the version is in the path."""
    return [folder() / module.name / Path(file).name for file in module.files]


def missing() -> str | None:
    """What to do where they haven't been fetched."""
    if all(path.exists() for module in MODULES for path in paths(module)):
        return None
    return "CRDs of other projects aren't there: `make cluster-build` fetches them"


def fetch() -> None:
    """Bring those that aren't there: 18 MB of modules the first time."""
    for module in MODULES:
        if not all(path.exists() for path in paths(module)):
            _fetch(module)


def _fetch(module: Module) -> None:
    say(f"fetching CRDs of {module.name}")
    with tempfile.TemporaryDirectory() as scratch:
        (Path(scratch) / "go.mod").write_text("module scratch\n")
        words = ("go", "-C", scratch, "mod", "download", "-json", module.name)
        found: dict[str, str] = json.loads(output(*words))
    if found["Sum"] != module.sum:
        raise ClusterError(f"{module.name} has the sum {found['Sum']} and not {module.sum}")
    for file, path in zip(module.files, paths(module), strict=True):
        path.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(Path(found["Dir"]) / file, path)


def documents() -> list[dict[str, Any]]:
    """All of them."""
    return [dict(yaml.safe_load(path.read_text())) for module in MODULES for path in paths(module)]
