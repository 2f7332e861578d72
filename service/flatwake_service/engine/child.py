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
from flatwake_service.engine.messages import Failed
from flatwake_service.engine.oom import oom_kills
from flatwake_service.manifest.reasons import Reason

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
        self._oom_kills = oom_kills()
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

    async def wait(self) -> Failed:
        """Waits for its end, and says what can be seen of why."""
        assert self._process is not None, "never spawned"
        code = await self._process.wait()
        before, now = self._oom_kills, oom_kills()
        return describe_exit(code, before is not None and now is not None and now > before)


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


def describe_exit(code: int, out_of_memory: bool) -> Failed:
    """`code` is the exit code, or minus the signal's number; `out_of_memory` whether the kernel has
    killed a process here for memory."""
    if code == -signal.SIGKILL and out_of_memory:
        message = "the engine process was killed for want of memory; raise the memory limit"
        return Failed(Reason.OUT_OF_MEMORY.value, message)
    if code >= 0:
        message = f"the engine process exited with code {code}; its log says why"
    else:
        names = {number.value: number.name for number in signal.Signals}
        message = f"the engine process was ended by {names.get(-code, f'signal {-code}')}"
    return Failed(Reason.ENGINE_FAILED.value, message)
