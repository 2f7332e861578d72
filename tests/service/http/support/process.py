"""A server in a process of its own, for what only a process has: signals and an exit code."""

from __future__ import annotations

import multiprocessing
import os
import tempfile
from multiprocessing import forkserver
from pathlib import Path
from typing import Any

PATIENCE = 30.0

# A server's imports take a second; the fork server does them once for all tests.
_context = multiprocessing.get_context("forkserver")
_context.set_forkserver_preload(["fake_server"])


def _start_fork_server() -> None:
    # It doesn't hear of sys.path before it preloads, but it inherits the environment.
    before = os.environ.get("PYTHONPATH")
    here = str(Path(__file__).parent)
    os.environ["PYTHONPATH"] = f"{here}{os.pathsep}{before}" if before else here
    try:
        forkserver.ensure_running()
    finally:
        del os.environ["PYTHONPATH"]
        if before is not None:
            os.environ["PYTHONPATH"] = before


class ServerProcess:
    """Runs `fake_server.main`; `url` is known at once, `wait_ready` waits for the engine."""

    def __init__(self, **settings: Any) -> None:
        import fake_server

        _start_fork_server()
        self._told, child = _context.Pipe(duplex=False)
        self._folder = tempfile.TemporaryDirectory()
        self._log = Path(self._folder.name) / "log"
        self._process = _context.Process(
            target=fake_server.main, args=({"port": 0, **settings}, str(self._log), child)
        )
        self._process.start()
        child.close()
        self.url = self._hear()

    def _hear(self) -> str:
        assert self._told.poll(PATIENCE), self._log.read_text()
        return str(self._told.recv())

    def __enter__(self) -> ServerProcess:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process.is_alive():
            self._process.kill()
        self._process.join()
        self._told.close()
        self._folder.cleanup()

    def wait_ready(self) -> ServerProcess:
        assert self._hear() == "ready"
        return self

    def signal(self, number: int) -> None:
        assert self._process.pid is not None
        os.kill(self._process.pid, number)

    def ended(self) -> tuple[int, str]:
        """Exit code and log, once it has ended by itself."""
        self._process.join(PATIENCE)
        assert self._process.exitcode is not None, self._log.read_text()
        return self._process.exitcode, self._log.read_text()
