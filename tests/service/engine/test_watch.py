"""Slow or hung, long or still: judged without a process or a clock."""

from __future__ import annotations

import ctypes
import os

from flatwake_service.engine.heartbeat import Heartbeat
from flatwake_service.engine.messages import Failed, Loading
from flatwake_service.engine.watch import WATCH_SECONDS, Watch


class Case:
    def __init__(self, step_timeout: float = 5.0, start_timeout: float | None = None) -> None:
        self.heartbeat, descriptor = Heartbeat.create()
        os.close(descriptor)
        self.now = 100.0
        self.watch = Watch(self.heartbeat, step_timeout, start_timeout, self.now)

    def stamp(self, step: int) -> None:
        self.heartbeat.begin(step)
        ctypes.c_uint64.from_address(self.heartbeat.address).value = int(self.now * 1e9)

    def look(self, seconds: float) -> Failed | None:
        """Look as often as the client does, for `seconds`; the first verdict."""
        until = self.now + seconds
        while self.now < until:
            self.now += WATCH_SECONDS
            failed = self.watch.look(self.now)
            if failed is not None:
                return failed
        return None


def test_a_step_without_a_sign_of_life_is_hung() -> None:
    case = Case()
    case.watch.started()
    case.stamp(step=12)
    assert case.look(5.0) is None
    failed = case.look(0.5)
    assert failed == Failed("DeviceHung", "device hung: no sign of life for 5.2 s, in step 12")


def test_a_long_step_that_stamps_between_its_ops_is_only_slow() -> None:
    case = Case()
    case.watch.started()
    for _ in range(10):
        case.stamp(step=12)
        assert case.look(4.0) is None


def test_an_idle_engine_may_be_silent_for_as_long_as_it_sleeps() -> None:
    case = Case(step_timeout=0.5)
    case.watch.started()
    case.stamp(step=0)
    assert case.look(3.0) is None
    assert case.look(0.5) is not None


def test_a_parent_that_stood_still_blames_no_one_at_once() -> None:
    case = Case()
    case.watch.started()
    case.stamp(step=12)
    case.now += 3600
    assert case.look(5.0) is None
    assert case.look(0.5) is not None


def test_a_load_is_bounded_by_its_progress_and_not_by_its_length() -> None:
    case = Case(start_timeout=10.0)
    for done in range(20):
        case.watch.progressed(Loading("loading", done, 20), case.now)
        assert case.look(9.0) is None
    case.watch.progressed(Loading("loading", 19, 20), case.now)
    assert case.look(1.0) is None
    failed = case.look(10.0)
    assert failed == Failed("NoProgress", "no progress for 10.2 s while loading, at 19 of 20")


def test_without_a_bound_a_load_may_take_forever() -> None:
    assert Case().look(1e4) is None


def test_a_worker_that_never_stamps_is_not_judged() -> None:
    case = Case()
    case.watch.started()
    assert case.look(1e4) is None
