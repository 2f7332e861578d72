import pytest
from flatwake_service.engine.slots import SlotPool


def test_slot_zero_is_never_given_and_the_one_freed_last_comes_first() -> None:
    pool = SlotPool(3)
    assert [pool.take(), pool.take()] == [1, 2]
    pool.release(1)
    assert [pool.take(), pool.take()] == [1, 3]
    assert (pool.free, pool.used) == (0, 3)


def test_misuse_is_our_bug_and_stops() -> None:
    pool = SlotPool(1)
    for slot in (0, 2):
        with pytest.raises(AssertionError, match="not one of"):
            pool.release(slot)
    with pytest.raises(AssertionError, match="free already"):
        pool.release(1)
    slot = pool.take()
    with pytest.raises(AssertionError, match="no slot is free"):
        pool.take()
    pool.check([slot])
    with pytest.raises(AssertionError, match="lost or held twice"):
        pool.check([slot, slot])
    with pytest.raises(AssertionError, match="lost or held twice"):
        pool.check([])
