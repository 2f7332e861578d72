"""The engine process: `python -m flatwake_service.engine.worker CONFIGURATION`, a JSON document.

It belongs to the API process that made it, and ends by that one's word or with it.
"""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import gc
import logging
import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial

from flatwake_kernels.backend import BackendUnavailable, KernelError, MemoryShort, Unsupported
from flatwake_kernels.ops import BLOCK_TOKENS

from flatwake_service.engine import config as configuration
from flatwake_service.engine.channel import Channel, Disconnected
from flatwake_service.engine.config import EngineConfig
from flatwake_service.engine.heartbeat import IDLE_SECONDS, Heartbeat
from flatwake_service.engine.interface import StepRunner
from flatwake_service.engine.log import configure_log
from flatwake_service.engine.loop import Loop
from flatwake_service.engine.messages import Failed, Loading, Shutdown, Started, Vocabulary
from flatwake_service.engine.scheduler import Scheduler
from flatwake_service.errors import FlatwakeError
from flatwake_service.manifest.reasons import Reason

Progress = Callable[[str, int, int], None]
OpenRunner = Callable[[EngineConfig, Progress, int], StepRunner]
"""Given the configuration, where to tell progress, and the address of the heartbeat's stamp."""

_PR_SET_PDEATHSIG = 1
_PROGRESS_SECONDS = 0.1

log = logging.getLogger("flatwake.engine")


def main(arguments: Sequence[str] | None = None, open_runner: OpenRunner | None = None) -> int:
    """The process's exit code: 0 after Shutdown or without a parent, 1 after a failure."""
    (document,) = sys.argv[1:] if arguments is None else arguments
    config = configuration.decode(document)
    configure_log(config.log_format)
    faulthandler.enable()
    for ignored in (signal.SIGINT, signal.SIGTERM):
        signal.signal(ignored, signal.SIG_IGN)
    try:
        _end_with_parent()
        channel = Channel.connect(config.socket)
    except Disconnected as gone:
        log.info("no API process: %s", gone)
        return 0
    try:
        _serve(config, channel, open_runner or _open_runner(config, channel))
    except Disconnected as gone:
        log.info("the API process is gone: %s", gone)
    except Exception as error:  # noqa: BLE001  Whatever it is, the API process must hear of it.
        _report_failure(channel, error)
        return 1
    finally:
        channel.close()
    return 0


def _serve(config: EngineConfig, channel: Channel, open_runner: OpenRunner) -> None:
    heartbeat = Heartbeat.open(config.heartbeat) if config.heartbeat else None
    progress = _Progress(channel, heartbeat)
    runner = open_runner(config, progress, heartbeat.address if heartbeat else 0)
    scheduler = Scheduler(
        blocks=runner.blocks,
        slots=runner.slots,
        context=runner.context,
        max_sequences=config.max_sequences,
        prefill_tokens=config.prefill_tokens,
        share_prompts=not runner.recurrent,
    )
    loop = Loop(
        channel,
        scheduler,
        runner,
        heartbeat,
        checked=config.check_invariants,
        hold=config.hold,
        hold_step=config.hold_step,
    )
    # What the start left behind lives as long as the process: no collection looks at it again.
    gc.collect()
    gc.freeze()
    if heartbeat is not None:
        heartbeat.beat()
    channel.send(
        Started(
            context=scheduler.context,
            kv_tokens=runner.blocks * BLOCK_TOKENS,
            vocabulary=runner.vocabulary,
            backend=config.backend,
            device=runner.device,
            bandwidth_bytes=runner.bandwidth_bytes,
            model_bytes=runner.model_bytes,
            model_context=runner.model_context,
        )
    )
    asked = config.context_length or 0
    if asked > runner.model_context:
        log.warning(
            "a context of %d tokens was asked for; the model was made for %d, and gets no more",
            asked,
            runner.model_context,
        )
    log.info("ready: context %d, %d KV blocks", scheduler.context, runner.blocks)
    loop.run()


class _Progress:
    """Tells the API process how far the start is, at most ten times a second."""

    def __init__(self, channel: Channel, heartbeat: Heartbeat | None) -> None:
        self._channel = channel
        self._heartbeat = heartbeat
        self._phase, self._told = "", 0.0

    def __call__(self, phase: str, done: int, total: int) -> None:
        if self._heartbeat is not None:
            self._heartbeat.beat()
        now = time.monotonic()
        if phase == self._phase and done < total and now - self._told < _PROGRESS_SECONDS:
            return
        self._phase, self._told = phase, now
        self._channel.send(Loading("warming" if phase == "warming" else "loading", done, total))


def _open_runner(config: EngineConfig, channel: Channel) -> OpenRunner:
    # Imported late: it loads numpy, the kernels' library and the models' code, and what goes wrong
    # there can be reported only once the channel is open.
    from flatwake_service.engine.runner import open_runner

    if not config.vocabulary_follows:
        return open_runner
    return partial(open_runner, vocabulary=lambda: _await_vocabulary(channel))


def _await_vocabulary(channel: Channel) -> int:
    """
    Raises:
        Disconnected: the API process ends before it has read its tokenizer.
    """
    while True:
        for message in channel.receive(IDLE_SECONDS):
            match message:
                case Vocabulary(size=size):
                    return size
                case Shutdown():
                    raise Disconnected("it ended before it had read the tokenizer")


def _end_with_parent() -> None:
    """Have the kernel kill this process when the thread that made it ends.

    A parent that ended before this call is noticed by nobody listening on the socket, and one that
    ended just now by the change of parent.

    Raises:
        Disconnected: the parent is gone already.
    """
    parent = os.getppid()
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG)")
    if os.getppid() != parent:
        raise Disconnected("the parent ended")


def _report_failure(channel: Channel, error: Exception) -> None:
    failed = Failed(failure_reason(error), _describe(error))
    if isinstance(error, FlatwakeError | BackendUnavailable):
        log.error("%s: %s", failed.reason, failed.message)
    else:
        log.error("%s: %s", failed.reason, failed.message, exc_info=error)
    with contextlib.suppress(Disconnected):
        channel.send(failed)


def failure_reason(error: Exception) -> str:
    """The word of the manifest's closed list for what ended the engine."""
    match error:
        case FlatwakeError() if error.reason in set(Reason):
            return error.reason
        case FileNotFoundError():
            return Reason.MODEL_MISSING.value
        case MemoryError():
            return Reason.OUT_OF_MEMORY.value
        case BackendUnavailable():
            return Reason.LIBRARY_UNUSABLE.value
        case MemoryShort():
            return Reason.OUT_OF_MEMORY.value
        case Unsupported():
            return Reason.MODEL_UNSUPPORTED.value
        case KernelError():
            return Reason.DEVICE_FAULT.value
        case _:
            return Reason.ENGINE_FAILED.value


def _describe(error: Exception) -> str:
    if isinstance(error, FlatwakeError | BackendUnavailable | KernelError | OSError):
        return str(error)
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


if __name__ == "__main__":
    sys.exit(main())
