import random

import pytest
from flatwake_service.engine.blocks import BlockPool, blocks_for


def test_a_block_holds_sixteen_positions() -> None:
    assert [blocks_for(n) for n in (0, 1, 16, 17, 32, 33)] == [0, 1, 1, 2, 2, 3]


def test_block_zero_is_never_given() -> None:
    pool = BlockPool(3)
    assert sorted(pool.take() for _ in range(3)) == [1, 2, 3]


def test_the_block_freed_last_is_given_first_and_a_new_one_only_when_none_was_freed() -> None:
    pool = BlockPool(100)
    first, second, third = (pool.take() for _ in range(3))
    pool.release(second)
    pool.release(first)
    assert [pool.take(), pool.take(), pool.take()] == [first, second, third + 1]
    assert pool.touched == pool.used == 4


def test_touched_is_the_peak_of_used() -> None:
    pool, rng, held, peak = BlockPool(64), random.Random(5), [], 0
    for _ in range(2000):
        if held and rng.random() < 0.5:
            pool.release(held.pop(rng.randrange(len(held))))
        elif pool.free:
            held.append(pool.take())
        peak = max(peak, len(held))
        assert (pool.used, pool.touched) == (len(held), peak)
        pool.check([held])


def test_a_shared_block_is_free_when_its_last_holder_lets_go() -> None:
    pool = BlockPool(2)
    block = pool.take()
    pool.share(block)
    pool.release(block)
    assert (pool.count(block), pool.free) == (1, 1)
    pool.release(block)
    assert (pool.count(block), pool.free) == (0, 2)


def test_misuse_is_our_bug_and_stops() -> None:
    pool = BlockPool(1)
    with pytest.raises(AssertionError, match="padding"):
        pool.release(0)
    with pytest.raises(AssertionError, match="free"):
        pool.release(1)
    with pytest.raises(AssertionError, match="can't be shared"):
        pool.share(1)
    block = pool.take()
    with pytest.raises(AssertionError, match="no block is free"):
        pool.take()
    pool.release(block)
    with pytest.raises(AssertionError, match="free already"):
        pool.release(block)


@pytest.mark.parametrize(
    ("tables", "message"),
    [
        ([[1]], "miscounted"),
        ([[1, 2], [2]], "miscounted"),
        ([[1, 2, 7]], "never given"),
        ([[0, 1, 2]], "block 0"),
    ],
)
def test_the_self_check_finds(tables: list[list[int]], message: str) -> None:
    pool = BlockPool(4)
    assert [pool.take(), pool.take()] == [1, 2]
    pool.check([[1], [2]])
    with pytest.raises(AssertionError, match=message):
        pool.check(tables)
