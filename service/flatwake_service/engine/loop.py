"""The engine thread's loop: take messages, schedule, launch, read, report."""

from __future__ import annotations

import sys
import time
from pathlib import Path

from flatwake_service.engine.batch import Batch, Result
from flatwake_service.engine.channel import Channel
from flatwake_service.engine.heartbeat import IDLE_SECONDS, Heartbeat
from flatwake_service.engine.interface import StepRunner
from flatwake_service.engine.messages import (
    Cancel,
    Down,
    Drain,
    SequenceTokens,
    Shutdown,
    Stats,
    Submit,
    Tokens,
    Vocabulary,
)
from flatwake_service.engine.scheduler import Scheduler
from flatwake_service.engine.tally import Tally

STATS_SECONDS = 1.0


class Loop:
    """Owns the turn; the scheduler decides, the runner computes, the channel carries.

    `hold` is a test's pipe: the engine waits until it is written before it reads the ids of step
    `hold_step`. `checked` verifies every invariant around every step, else only when idle.
    """

    def __init__(
        self,
        channel: Channel,
        scheduler: Scheduler,
        runner: StepRunner,
        heartbeat: Heartbeat | None = None,
        *,
        checked: bool = False,
        hold: str | None = None,
        hold_step: int = 2,
    ) -> None:
        self._channel = channel
        self._scheduler = scheduler
        self._runner = runner
        self._heartbeat = heartbeat
        self._checked = checked
        self._hold = hold
        self._hold_step = hold_step
        self._tally = Tally()
        self._steps = 0
        self._idle = False
        self._told = 0.0

    def run(self) -> None:
        """Serve until Shutdown.

        Raises:
            Disconnected: the API process is gone.
        """
        while self._take_messages():
            self._expire()
            batch = self._scheduler.schedule()
            if batch.empty:
                self._rest()
            else:
                self._step(batch)

    def _take_messages(self) -> bool:
        """Act on what has come; idle, wait for it. False: the engine is to end."""
        for message in self._channel.receive(IDLE_SECONDS if self._idle else 0.0):
            self._idle = False
            if not self._act(message):
                return False
        return True

    def _act(self, message: Down) -> bool:
        match message:
            case Submit():
                ended = self._scheduler.submit(message)
                if ended is not None:
                    self._report([ended], [])
            case Cancel():
                self._scheduler.cancel(message.sequence)
            case Drain() | Vocabulary():
                pass  # Everything submitted is finished anyway; the vocabulary was a start's.
            case Shutdown():
                return False
        return True

    def _expire(self) -> None:
        late = self._scheduler.expire(time.monotonic())
        if late:
            self._report(late, [])

    def _rest(self) -> None:
        """Nothing to do. On becoming idle: the invariants, and the values of the last steps."""
        if self._heartbeat is not None:
            self._heartbeat.beat()
        if not self._idle:
            self._idle = True
            self._scheduler.check()
            self._tell()

    def _step(self, batch: Batch) -> None:
        self._steps = batch.step
        if self._heartbeat is not None:
            self._heartbeat.begin(batch.step)
        if self._checked:
            self._scheduler.check()
            self._scheduler.check_writes(batch)
        for sequence in batch.taken:
            self._runner.take(sequence)
        self._runner.launch(batch)
        if self._hold is not None and batch.step == self._hold_step:
            Path(self._hold).read_bytes()
        for result in self._runner.read():
            self._finish(result)
        if self._checked:
            self._scheduler.check()
        if self._heartbeat is not None:
            self._heartbeat.end()
        if time.monotonic() - self._told >= STATS_SECONDS:
            self._tell()

    def _finish(self, result: Result) -> None:
        """One part of a step is done: its tokens leave before the next part runs."""
        stamp = time.monotonic()
        news = self._scheduler.commit(result)
        if news.entries or news.started:
            self._report(news.entries, news.started, stamp)
        if self._heartbeat is not None:
            self._heartbeat.beat()
        self._tally.observe(result)

    def _report(
        self, entries: list[SequenceTokens], started: list[int], stamp: float | None = None
    ) -> None:
        now = time.monotonic() if stamp is None else stamp
        self._channel.send(Tokens(self._steps, now, tuple(entries), tuple(started)))

    def _tell(self) -> None:
        self._told = time.monotonic()
        self._channel.send(self._stats())

    def _stats(self) -> Stats:
        scheduler, runner, tally = self._scheduler, self._runner, self._tally
        return Stats(
            prompt_tokens=scheduler.totals.prompt,
            generated_tokens=scheduler.totals.generated,
            reported_tokens=scheduler.totals.reported,
            discarded_tokens=scheduler.totals.discarded,
            steps=self._steps,
            step_bytes=tally.bytes,
            preemptions=scheduler.totals.preemptions,
            graph_replays=runner.graph_replays,
            graph_captures=runner.graph_captures,
            sequences_running=scheduler.running,
            sequences_waiting=scheduler.waiting,
            blocks_used=scheduler.blocks.used,
            blocks_free=scheduler.blocks.free,
            slots_used=scheduler.slots.used,
            slots_free=scheduler.slots.free,
            kv_touched_bytes=runner.kv_touched_bytes(),
            device_bytes=runner.device_bytes(),
            decode_seconds=tally.decode_seconds.read(),
            prefill_seconds=tally.prefill_seconds.read(),
            decode_rows=tally.decode_rows.read(),
            prefill_rows=tally.prefill_rows.read(),
            python_blocks=sys.getallocatedblocks(),
        )
