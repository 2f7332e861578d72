"""The queue's promises, for any order of wakes, failures and time."""

import asyncio
from collections import Counter

import pytest
from flatwake_operator.errors import ApiError, LeaseLostError
from flatwake_operator.keys import FIRST_SECONDS, MOST_SECONDS, KeyQueue
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


async def _nothing(_: str) -> float | None:
    return None


def queue(clock: Clock) -> KeyQueue[str]:
    return KeyQueue(_nothing, clock=clock, jitter=lambda: 0.5)


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.sampled_from("abc"), st.floats(0, 10)),
        st.tuples(st.just("take"), st.just(""), st.just(0.0)),
        st.tuples(st.just("done"), st.sampled_from("abc"), st.just(0.0)),
        st.tuples(st.just("wait"), st.just(""), st.floats(0, 10)),
    ),
    max_size=60,
)


@given(STEPS)
@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)
def test_a_key_never_runs_twice_at_once_and_no_wake_is_lost(
    steps: list[tuple[str, str, float]],
) -> None:
    clock = Clock()
    keys = queue(clock)
    running: Counter[str] = Counter()
    owed: dict[str, float] = {}
    for what, key, number in steps:
        if what == "add":
            keys.add(key, number)
            owed[key] = min(owed.get(key, float("inf")), clock.now + number)
        elif what == "take":
            taken = keys.take()
            if taken is not None:
                running[taken] += 1
                assert running[taken] == 1
                assert owed.pop(taken) <= clock.now
        elif what == "done" and running[key]:
            running[key] -= 1
            keys.done(key, None)
        elif what == "wait":
            clock.now += number
    for key in list(running):
        if running[key]:
            keys.done(key, None)
    clock.now += 100
    left = set()
    while (taken := keys.take()) is not None:
        left.add(taken)
    assert left == set(owed)


def test_failures_wait_longer_and_a_success_forgets_them() -> None:
    async def work(_: str) -> float | None:
        raise ApiError(500, {}, "GET x", None)

    keys: KeyQueue[str] = KeyQueue(work, jitter=lambda: 0.5)
    error = ApiError(500, {}, "GET x", None)
    waits = [keys._backoff("a", error) for _ in range(12)]
    assert waits[0] == FIRST_SECONDS
    assert waits == sorted(waits)
    assert waits[-1] == MOST_SECONDS
    assert keys.failing == 1


def test_an_api_servers_own_wish_is_kept() -> None:
    keys = queue(Clock())
    assert keys._backoff("a", ApiError(429, {}, "GET x", retry_after=17.0)) == 17.0


def test_workers_run_each_key_and_again_when_woken_meanwhile() -> None:
    async def scenario() -> Counter[str]:
        ran: Counter[str] = Counter()
        enough = asyncio.Event()
        keys: KeyQueue[str]

        async def work(key: str) -> float | None:
            ran[key] += 1
            if key == "a" and ran[key] == 1:
                keys.add(key)  # woken by its own write
            if sum(ran.values()) == 3:
                enough.set()
            return None

        keys = KeyQueue(work)
        workers = asyncio.create_task(keys.run(2))
        keys.add("a")
        keys.add("b")
        await asyncio.wait_for(enough.wait(), 5)
        workers.cancel()
        await asyncio.gather(workers, return_exceptions=True)
        return ran

    assert asyncio.run(scenario()) == {"a": 2, "b": 1}


def test_a_lost_lease_ends_the_work() -> None:
    async def scenario() -> None:
        async def work(_: str) -> float | None:
            raise LeaseLostError("lost")

        keys: KeyQueue[str] = KeyQueue(work)
        keys.add("a")
        await asyncio.wait_for(keys.run(2), 5)

    with pytest.raises(ExceptionGroup) as caught:
        asyncio.run(scenario())
    assert caught.value.subgroup(LeaseLostError) is not None
