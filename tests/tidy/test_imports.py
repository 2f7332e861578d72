"""Imports point one way, as docs/architecture.md draws the house."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = {
    "flatwake_kernels": ROOT / "kernels",
    "flatwake_service": ROOT / "service",
    "flatwake_operator": ROOT / "operator",
    "flatwake_loadtest": ROOT / "loadtest",
}
# In the service, left may not import right; rooms of one group stand side by side.
ORDER = (
    ("manifest", "errors", "version"),
    ("weights", "text"),
    ("models",),
    ("engine",),
    ("http",),
    ("bench",),
    ("cli",),
)
HTTP_SEES = ("flatwake_service.engine.client", "flatwake_service.engine.messages")


def modules(package: str) -> Iterator[tuple[str, Path]]:
    folder = PACKAGES[package]
    for path in sorted((folder / package).rglob("*.py")):
        parts = path.relative_to(folder).with_suffix("").parts
        yield ".".join(p for p in parts if p != "__init__"), path


def imports(path: Path) -> Iterator[str]:
    """Every module that a file names, also inside functions."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = _base(path, node.level)
            prefix = ".".join(filter(None, [*base, node.module]))
            yield from (f"{prefix}.{alias.name}" for alias in node.names)


def _base(path: Path, level: int) -> list[str]:
    """The package that `level` dots name, seen from a file."""
    if not level:
        return []
    parts = path.with_suffix("").parts
    start = max(i for i, part in enumerate(parts) if part in PACKAGES)
    return list(parts[start : len(parts) - level])


def ours(name: str) -> bool:
    return name.split(".")[0] in PACKAGES


def rank(room: str) -> int:
    return next(i for i, group in enumerate(ORDER) if room in group)


def test_kernels_import_nothing_of_ours() -> None:
    for module, path in modules("flatwake_kernels"):
        for name in filter(ours, imports(path)):
            assert name.startswith("flatwake_kernels"), f"{module} imports {name}"


@pytest.mark.parametrize("package", ["flatwake_operator", "flatwake_loadtest"])
def test_operator_and_load_suite_import_only_the_manifest(package: str) -> None:
    for module, path in modules(package):
        for name in filter(ours, imports(path)):
            allowed = name.startswith((package, "flatwake_service.manifest"))
            assert allowed, f"{module} imports {name}"


def test_rooms_of_the_service_import_from_left_to_right() -> None:
    seen = 0
    for module, path in modules("flatwake_service"):
        parts = module.split(".")
        room = parts[1] if len(parts) > 1 else ""
        if room in ("", "verify"):
            continue
        for name in filter(ours, imports(path)):
            other = name.split(".")
            if other[0] == "flatwake_kernels":
                assert room not in (*ORDER[0], "http"), f"{module} imports {name}"
                continue
            assert other[0] == "flatwake_service", f"{module} imports {name}"
            if len(other) == 1 or other[1] == room:
                continue
            seen += 1
            if other[1] == "verify":
                assert room == "cli", f"{module} imports {name}"
                continue
            assert rank(other[1]) <= rank(room), f"{module} imports {name}"
            if room == "http" and other[1] == "engine":
                assert name.startswith(HTTP_SEES), f"{module} imports {name}"
    assert seen, "no import was looked at"


def test_nobody_imports_torch_but_the_oracle() -> None:
    for package in PACKAGES:
        for module, path in modules(package):
            if module == "flatwake_service.verify.oracle":
                continue
            for name in imports(path):
                assert name.split(".")[0] not in ("torch", "transformers"), f"{module}: {name}"


@pytest.mark.parametrize("folder", ["operator", "service", "kernels", "loadtest", "tests"])
def test_top_folders_are_no_packages(folder: str) -> None:
    """A package called operator would shadow the standard library's."""
    assert not (ROOT / folder / "__init__.py").exists()
