import ctypes
import os
import time

from flatwake_service.engine.heartbeat import Heartbeat


def test_what_the_engine_stamps_is_seen_through_the_other_mapping() -> None:
    ours, descriptor = Heartbeat.create()
    theirs = Heartbeat.open(f"/proc/self/fd/{descriptor}")
    os.close(descriptor)
    assert (ours.stamp, ours.step) == (0, 0)
    before = time.monotonic()
    theirs.begin(7)
    assert before <= ours.stamp <= time.monotonic()
    assert ours.step == 7
    theirs.end()
    assert ours.step == 0


def test_a_library_may_stamp_it_through_its_address() -> None:
    heartbeat, descriptor = Heartbeat.create()
    os.close(descriptor)
    assert heartbeat.address % 8 == 0
    ctypes.c_uint64.from_address(heartbeat.address).value = 3_500_000_000
    assert heartbeat.stamp == 3.5
