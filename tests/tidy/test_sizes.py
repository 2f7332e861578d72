"""Small by habit, and a test keeps it so."""

from __future__ import annotations

import ast
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[2]
MODULE_LINES = 400
"""Mostly under 300; a room over 400 usually holds two nouns."""
FUNCTION_LINES = 80
# Lists of declarations, not rooms: a longer list is no harder to read.
LISTS = {"kernels/flatwake_kernels/ops.py", "service/flatwake_service/manifest/spec.py"}


def sources() -> list[Path]:
    tracked = subprocess.run(
        ["git", "ls-files", "*.py"], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout.split()
    return [ROOT / name for name in tracked if not name.startswith("tests/")]


def test_modules_stay_small() -> None:
    long = {
        str(path.relative_to(ROOT)): lines
        for path in sources()
        if (lines := len(path.read_text().splitlines())) > MODULE_LINES
    }
    assert {k: v for k, v in long.items() if k not in LISTS} == {}


def test_functions_fit_a_screen() -> None:
    long = []
    for path in sources():
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                assert node.end_lineno is not None
                # A command's options are its signature, however many they are.
                lines = node.end_lineno - node.body[0].lineno + 1
                if lines > FUNCTION_LINES:
                    long.append(f"{path.relative_to(ROOT)}:{node.lineno} {node.name} {lines}")
    assert long == []
