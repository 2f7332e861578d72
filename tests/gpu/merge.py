"""Every JSON file of a folder as one: `python merge.py FOLDER FILE`."""

from __future__ import annotations

import json
import sys
from pathlib import Path

if __name__ == "__main__":
    folder, target = map(Path, sys.argv[1:])
    found = {path.stem: json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))}
    target.write_text(json.dumps(found, indent=1) + "\n")
