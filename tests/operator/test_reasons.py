"""The closed list of reasons holds nothing that nobody says."""

from pathlib import Path

import pytest
from flatwake_service.manifest import Reason

ROOT = Path(__file__).parents[2]
LIST = ROOT / "service/flatwake_service/manifest/reasons.py"
FOLDERS = ("operator/flatwake_operator", "service/flatwake_service")
TEXT = "".join(
    path.read_text() for f in FOLDERS for path in (ROOT / f).rglob("*.py") if path != LIST
)


@pytest.mark.parametrize("reason", Reason)
def test_a_reason_is_said_somewhere(reason: Reason) -> None:
    """By its name, or by its value where errors name it as a string."""
    assert f"Reason.{reason.name}" in TEXT or f'"{reason.value}"' in TEXT
