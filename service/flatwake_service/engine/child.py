"""The engine's process as its parent holds it: spawned, listened for, killed, waited for."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from flatwake_service.engine import config as configuration
from flatwake_service.engine.config import EngineConfig
from flatwake_service.engine.heartbeat import Heartbeat

_SOCKET_PATH_BYTES = 99
_RUN = Path("/run/flatwake")


class Child:
    """A process, the socket that it connects to, and the page that it stamps.

    One child, one connection: once it is there, `stop_listening` removes socket and folder, so that
    a parent that is killed leaves nothing behind.
    """

    def __init__(self, folder: Path, heartbeat: Heartbeat) -> None:
        self.folder = folder
        self.heartbeat = heartbeat
        self._server: asyncio.Server | None = None
        self._process: asyncio.subprocess.Process | None = None

    async def spawn(
        self,
        config: EngineConfig,
        command: Sequence[str] | None,
        connection: Callable[[], asyncio.Protocol],
        descriptor: int,
    ) -> None:
        """Listen, then start `command` (default: the worker) with the configuration appended."""
        config = msgspec.structs.replace(
            config, socket=str(self.folder / "engine"), heartbeat=f"/proc/self/fd/{descriptor}"
        )
        command = command or [sys.executable, "-m", "flatwake_service.engine.worker"]
        loop = asyncio.get_running_loop()
        try:
            self._server = await loop.create_unix_server(connection, config.socket)
            self._process = await asyncio.create_subprocess_exec(
                *command,
                configuration.encode(config),
                stdin=asyncio.subprocess.DEVNULL,
                pass_fds=(descriptor,),
                # A terminal's Ctrl-C is the API process's to hear, from the first moment on.
                start_new_session=True,
            )
        except BaseException:
            self.stop_listening()
            raise

    @property
    def pid(self) -> int:
        assert self._process is not None, "never spawned"
        return self._process.pid

    def stop_listening(self) -> None:
        if self._server is not None:
            self._server.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    def kill(self) -> None:
        if self._process is not None and self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()

    async def wait(self) -> int:
        """The exit code, or minus the signal's number."""
        assert self._process is not None, "never spawned"
        return await self._process.wait()


async def start_child(
    config: EngineConfig,
    command: Sequence[str] | None,
    connection: Callable[[], asyncio.Protocol],
) -> Child:
    """A child that is about to connect; `connection` makes the protocol that meets it."""
    heartbeat, descriptor = Heartbeat.create()
    try:
        child = Child(private_folder(), heartbeat)
        await child.spawn(config, command, connection, descriptor)
    finally:
        os.close(descriptor)
    return child


def private_folder() -> Path:
    """A new folder that only this user may enter, short enough for a socket in it."""
    parents = [_RUN, Path(tempfile.gettempdir()), Path("/tmp")]  # noqa: S108  mkdtemp's is private.
    for parent in parents:
        long = len(os.fsencode(parent)) + len("/engine-xxxxxxxx/engine") > _SOCKET_PATH_BYTES
        if parent.is_dir() and os.access(parent, os.W_OK | os.X_OK) and not long:
            return Path(tempfile.mkdtemp(prefix="engine-", dir=parent))
    raise FileNotFoundError(
        f"no folder for the engine's socket: {', '.join(map(str, parents))} are missing, not"
        " writable or too long; set TMPDIR to a short path"
    )


def describe_exit(code: int) -> str:
    if code >= 0:
        return f"the engine process exited with code {code}; its log says why"
    names = {number.value: number.name for number in signal.Signals}
    cause = ": by hand, or out of memory" if -code == signal.SIGKILL else ""
    return f"the engine process was ended by {names.get(-code, f'signal {-code}')}{cause}"
