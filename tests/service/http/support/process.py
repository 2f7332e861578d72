"""A server in a process of its own, for what only a process has: signals and an exit code."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

PATIENCE = 30.0


class ServerProcess:
    """Runs `fake_server.py`; `url` is known at once, `wait_ready` waits for the engine."""

    def __init__(self, **settings: Any) -> None:
        script = Path(__file__).parent / "fake_server.py"
        self.process = subprocess.Popen(
            [sys.executable, str(script), json.dumps({"port": 0, **settings})],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        self.url = self.process.stdout.readline().strip()
        assert self.url, self.process.communicate()[1]

    def __enter__(self) -> ServerProcess:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate()

    def wait_ready(self) -> ServerProcess:
        assert self.process.stdout is not None
        assert self.process.stdout.readline().strip() == "ready"
        return self

    def signal(self, number: int) -> None:
        self.process.send_signal(number)

    def ended(self) -> tuple[int, str]:
        """Exit code and log, once it has ended by itself."""
        _, log = self.process.communicate(timeout=PATIENCE)
        return self.process.returncode, log
