"""Tells an engine that is slow from one that hangs, and a long start from one that stands still."""

from __future__ import annotations

from flatwake_service.engine.heartbeat import IDLE_SECONDS, Heartbeat
from flatwake_service.engine.messages import Failed, Loading
from flatwake_service.manifest.reasons import Reason

WATCH_SECONDS = 0.25
"""Time between two looks."""


class Watch:
    """Judges signs of life. Seconds; all times are CLOCK_MONOTONIC, and given.

    `step_timeout` bounds the time between two stamps of a started engine, `start_timeout` that
    between two `progressed` of one that still loads (None: unbounded).
    """

    def __init__(
        self,
        heartbeat: Heartbeat,
        step_timeout: float,
        start_timeout: float | None,
        now: float,
    ) -> None:
        self._heartbeat = heartbeat
        self._step_timeout = step_timeout
        self._start_timeout = start_timeout
        self._looked = self._since = self._moved = now
        self._progress: Loading | None = None
        self._started = False

    def progressed(self, progress: Loading, now: float) -> None:
        if progress != self._progress:
            self._progress, self._moved = progress, now

    def started(self) -> None:
        self._started = True

    def look(self, now: float) -> Failed | None:
        """Why the engine has to be ended; None while it is alive."""
        # A look that comes late says that this process stood still, perhaps with the engine.
        if now - self._looked > 4 * WATCH_SECONDS:
            self._since = now
        self._looked = now
        if self._started:
            # The worker stamps before it says that it started; what never stamps isn't judged.
            stamp = self._heartbeat.stamp
            return self._life(now - max(stamp, self._since)) if stamp else None
        if self._start_timeout is not None:
            return self._start(now - max(self._moved, self._since), self._start_timeout)
        return None

    def _life(self, silent: float) -> Failed | None:
        step = self._heartbeat.step
        # Between two steps it stamps as often as it wakes up.
        bound = self._step_timeout if step else max(self._step_timeout, 3 * IDLE_SECONDS)
        if silent <= bound:
            return None
        where = f"in step {step}" if step else "idle"
        return Failed(
            Reason.DEVICE_HUNG.value, f"device hung: no sign of life for {silent:.1f} s, {where}"
        )

    def _start(self, still: float, bound: float) -> Failed | None:
        if still <= bound:
            return None
        at = self._progress
        where = f" while {at.phase}, at {at.done} of {at.total}" if at else ""
        return Failed(Reason.NO_PROGRESS.value, f"no progress for {still:.1f} s{where}")
