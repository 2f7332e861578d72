"""Makes the HTTP tests' servers importable here."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "http" / "support"))
sys.path.insert(0, str(Path(__file__).parent / "support"))
