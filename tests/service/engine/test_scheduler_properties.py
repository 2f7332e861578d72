"""Random lives of sequences: whatever comes, goes, is cancelled or preempted, each gets its own."""

from __future__ import annotations

import gc
import random
import sys

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule
from scheduler_driver import NEVER, Driver

LENGTHS = (1, 2, 15, 16, 17, 31, 33, 63, 64, 65, 100, 127, 128, 129, 150)


def random_driver(rng: random.Random) -> Driver:
    return Driver(
        blocks=rng.choice([3, 5, 8, 12, 20, 40]),
        context=rng.choice([40, 100, 160, 300]),
        max_sequences=rng.choice([1, 2, 3, 4, 8]),
        prefill_tokens=rng.choice([64, 128, 192, 512]),
        recurrent=rng.random() < 0.5,
    )


def random_submit(driver: Driver, rng: random.Random) -> None:
    longest = driver.scheduler.context - 1
    length = min(longest, rng.choice(LENGTHS))
    ids = [rng.randrange(97) for _ in range(length)]
    deadline = driver.now + rng.choice([3, 30]) if rng.random() < 0.1 else NEVER
    group = rng.randrange(10**9)
    for choice in range(rng.choice([1, 1, 1, 2, 3])):
        driver.submit(
            ids,
            max_tokens=rng.choice([1, 2, 15, 16, 17, 40, 200]),
            seed=group + choice,
            stop_ids=tuple(rng.sample(range(97), rng.choice([0, 0, 1, 3]))),
            group=group,
            deadline=deadline,
        )


@pytest.mark.parametrize("seed", range(150))
def test_a_sequence_gets_the_same_tokens_in_any_company(seed: int) -> None:
    print("seed", seed)
    rng = random.Random(seed)
    driver = random_driver(rng)
    for _ in range(60):
        action = rng.random()
        if action < 0.25:
            random_submit(driver, rng)
        elif action < 0.30 and driver.open:
            driver.cancel(rng.choice(driver.open))
        elif action < 0.33 and driver.open:
            driver.step(cancel_in_flight=rng.choice(driver.open))
        elif action < 0.38:
            driver.wait(rng.random() * 3)
        else:
            driver.step()
    driver.finish()


def test_tiny_pools_do_preempt() -> None:
    """The tests above mean little unless sequences lose their blocks often."""
    preemptions = replays = 0
    for seed in range(20):
        rng = random.Random(seed)
        driver = Driver(blocks=10, context=150, max_sequences=4, recurrent=seed % 2 == 0)
        for i in range(6):
            ids = [rng.randrange(97) for _ in range(rng.randrange(1, 60))]
            driver.submit(ids, max_tokens=90, seed=i)
        driver.finish()
        preemptions += driver.scheduler.totals.preemptions
        replays += sum(entry.count > 1 for batch in driver.batches for entry in batch.decode)
    assert preemptions > 40
    assert replays > 40


def test_a_thousand_sequences_leave_nothing_behind() -> None:
    driver, sizes = Driver(blocks=10, context=150, max_sequences=4), []
    for number in range(1200):
        driver.submit([number % 97] * (1 + number % 50), max_tokens=number % 30 + 1, seed=number)
        if number % 7 == 0:
            driver.cancel(number + 1)
        if number % 5 == 0:
            driver.finish()
            driver.followed.clear()
            driver.cancelled.clear()
            driver.batches.clear()
        if number in (200, 1195):
            gc.collect()  # It empties the interpreter's own free lists, too.
            sizes.append(sys.getallocatedblocks())
    assert driver.scheduler.totals.preemptions > 50
    assert sizes[1] - sizes[0] < 200


class SchedulerMachine(RuleBasedStateMachine):
    """The same promises under hypothesis, which shrinks what breaks them."""

    @initialize(
        blocks=st.integers(2, 16),
        context=st.integers(20, 200),
        max_sequences=st.integers(1, 5),
        prefill_tokens=st.sampled_from([64, 128]),
        recurrent=st.booleans(),
    )
    def start(
        self, blocks: int, context: int, max_sequences: int, prefill_tokens: int, recurrent: bool
    ) -> None:
        self.driver = Driver(
            blocks=blocks,
            context=context,
            max_sequences=max_sequences,
            prefill_tokens=prefill_tokens,
            recurrent=recurrent,
        )

    @rule(
        length=st.integers(1, 150),
        max_tokens=st.integers(1, 60),
        seed=st.integers(0, 2**20),
        choices=st.integers(1, 3),
        patience=st.sampled_from([NEVER, NEVER, 3.0]),
    )
    def submit(
        self, length: int, max_tokens: int, seed: int, choices: int, patience: float
    ) -> None:
        rng = random.Random(seed)
        length = min(length, self.driver.scheduler.context - 1)
        ids = [rng.randrange(97) for _ in range(length)]
        for choice in range(choices):
            self.driver.submit(
                ids,
                max_tokens=max_tokens,
                seed=seed + choice,
                group=seed,
                deadline=self.driver.now + patience,
            )

    @rule(steps=st.integers(1, 12))
    def run(self, steps: int) -> None:
        for _ in range(steps):
            self.driver.step()

    @precondition(lambda self: self.driver.open)
    @rule(data=st.data(), in_flight=st.booleans())
    def cancel(self, data: st.DataObject, in_flight: bool) -> None:
        number = data.draw(st.sampled_from(self.driver.open))
        if in_flight:
            self.driver.step(cancel_in_flight=number)
        else:
            self.driver.cancel(number)

    @rule(seconds=st.floats(0, 4))
    def wait(self, seconds: float) -> None:
        self.driver.wait(seconds)

    def teardown(self) -> None:
        if hasattr(self, "driver"):
            self.driver.finish()


SchedulerMachine.TestCase.settings = settings(
    max_examples=40, stateful_step_count=25, deadline=None, print_blob=True
)
TestScheduler = SchedulerMachine.TestCase
