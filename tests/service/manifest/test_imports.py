"""The manifest is read by every command, so it stays light."""

import subprocess
import sys

HEAVY = ("numpy", "httpx", "fastapi", "kubernetes", "kopf", "torch", "rich", "typer", "asyncio")


def test_importing_the_manifest_brings_nothing_heavy() -> None:
    code = (
        "import sys, flatwake_service.manifest; "
        f"print(*sorted(set({HEAVY!r}) & set(sys.modules)), "
        "*sorted(m for m in sys.modules if m.startswith('flatwake_') "
        "and not m.startswith('flatwake_service.manifest')))"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.split() == ["flatwake_service"]
