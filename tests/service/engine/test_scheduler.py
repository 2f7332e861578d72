import random

import pytest
from flatwake_service.engine.messages import SamplingParams, Submit
from scheduler_driver import NEVER, Driver


def prompt(length: int, seed: int = 0) -> list[int]:
    rng = random.Random(seed * 1000 + length)
    return [rng.randrange(97) for _ in range(length)]


def chunks(driver: Driver, number: int) -> list[tuple[int, int]]:
    return [
        (chunk.start, chunk.count)
        for batch in driver.batches
        for chunk in batch.chunks
        if chunk.sequence.number == number
    ]


@pytest.mark.parametrize("length", [1, 15, 16, 17, 63, 64, 65, 127, 128, 129, 191, 192, 193])
def test_a_prompt_of_any_length_gives_its_own_tokens(length: int) -> None:
    driver = Driver(blocks=40, context=400)
    number = driver.submit(prompt(length), max_tokens=40)
    driver.finish()
    assert driver.followed[number].ended == driver.followed[number].finish


def test_a_long_prompt_is_cut_at_multiples_of_64() -> None:
    driver = Driver(blocks=40, context=600, prefill_tokens=128)
    number = driver.submit(prompt(300))
    driver.finish()
    assert chunks(driver, number) == [(0, 128), (128, 128), (256, 44)]


def test_the_rest_of_a_steps_budget_goes_to_the_next_prompts_in_order() -> None:
    driver = Driver(blocks=40, context=600, prefill_tokens=192)
    first, second, third = (driver.submit(prompt(n, seed=n)) for n in (100, 200, 10))
    driver.step()
    assert chunks(driver, first) == [(0, 100)]
    assert chunks(driver, second) == [(0, 64)]
    # 28 are left of the budget: too few for the second one, whose chunks end at multiples of 64.
    assert chunks(driver, third) == [(0, 10)]
    driver.finish()
    assert chunks(driver, second) == [(0, 64), (64, 136)]


def test_a_long_prompt_delays_running_streams_by_at_most_a_chunk() -> None:
    driver = Driver(blocks=200, context=2000, prefill_tokens=128)
    running = driver.submit(prompt(5), max_tokens=60)
    driver.step()
    driver.submit(prompt(1500))
    driver.submit(prompt(700))
    before = len(driver.followed[running].output)
    for steps in range(1, 16):
        driver.step()
        assert len(driver.followed[running].output) == before + steps
    driver.finish()


def test_all_running_sequences_decode_in_every_step() -> None:
    driver = Driver(blocks=100, context=200, max_sequences=8)
    numbers = [driver.submit(prompt(9, seed=i), max_tokens=30, seed=i) for i in range(8)]
    driver.step()
    for _ in range(29):
        driver.step()
        decoded = [entry.sequence.number for entry in driver.batches[-1].decode]
        assert decoded == [n for n in numbers if n in decoded]
        assert set(driver.open) <= set(decoded)
    assert not driver.step()


def test_no_more_than_max_sequences_hold_blocks() -> None:
    driver = Driver(blocks=100, context=200, max_sequences=3)
    for i in range(10):
        driver.submit(prompt(10, seed=i))
    while driver.step():
        assert driver.scheduler.running <= 3
    driver.finish()


def test_admission_waits_for_the_prompts_blocks_and_one_more() -> None:
    driver = Driver(blocks=5, context=80, max_sequences=4)
    driver.submit(prompt(33), max_tokens=4)  # three blocks until its end
    second = driver.submit(prompt(17), max_tokens=4)  # two blocks, one more isn't there
    driver.step()
    assert chunks(driver, second) == []
    driver.finish()
    assert driver.scheduler.totals.preemptions == 0


def test_a_prompt_that_needs_the_whole_pool_runs_alone_and_ends_with_length() -> None:
    driver = Driver(blocks=4, context=1000)
    number = driver.submit(prompt(60), max_tokens=500)
    other = driver.submit(prompt(20, seed=1), max_tokens=5)
    driver.finish()
    assert driver.followed[number].ended == "length"
    assert len(driver.followed[number].output) == 4
    assert driver.followed[other].ended is not None


def test_the_youngest_is_preempted_replayed_and_nothing_is_sent_again() -> None:
    driver = Driver(blocks=6, context=96, max_sequences=4)
    old, young = (driver.submit(prompt(20, seed=i), max_tokens=60, seed=i) for i in range(2))
    driver.finish()
    assert driver.scheduler.totals.preemptions > 0
    assert chunks(driver, old) == [(0, 20)]
    assert len(chunks(driver, young)) == 1 + driver.scheduler.totals.preemptions
    replays = [
        entry
        for batch in driver.batches
        for entry in batch.decode
        if entry.sequence.number == young and (entry.count > 1 or not entry.samples)
    ]
    assert replays, "generated tokens were not replayed"
    assert max(entry.count for entry in replays) > 1, "rows left over weren't used"


def test_a_preempted_sequence_comes_before_those_that_waited() -> None:
    driver = Driver(blocks=6, context=96, max_sequences=2)
    for i in range(2):
        driver.submit(prompt(20, seed=i), max_tokens=60, seed=i)
    waiting = driver.submit(prompt(5, seed=9), max_tokens=2)
    while not driver.scheduler.totals.preemptions:
        driver.step()
        assert not driver.followed[waiting].starts
    driver.finish()


def test_the_stop_id_is_reported_and_ends_the_sequence() -> None:
    driver = Driver(blocks=10, context=160)
    probe = driver.submit(prompt(8), max_tokens=20)
    driver.finish()
    fourth = driver.followed[probe].output[3]
    number = driver.submit(prompt(8), max_tokens=20, stop_ids=(fourth,))
    driver.finish()
    assert driver.followed[number].ended == "stop"
    assert driver.followed[number].output[-1] == fourth


def test_generation_ends_at_the_context_with_length() -> None:
    driver = Driver(blocks=100, context=50)
    number = driver.submit(prompt(45), max_tokens=100)
    driver.finish()
    assert len(driver.followed[number].output) == 5
    assert driver.followed[number].ended == "length"


@pytest.mark.parametrize("steps", [0, 1, 2, 3, 6])
def test_a_cancelled_sequence_is_free_before_the_next_step(steps: int) -> None:
    """While it is queued, in the middle of its prefill, and while it decodes."""
    driver = Driver(blocks=40, context=600, prefill_tokens=64)
    number = driver.submit(prompt(150), max_tokens=50)
    for _ in range(steps):
        driver.step()
    driver.cancel(number)
    assert driver.scheduler.blocks.used == driver.scheduler.slots.used == 0
    assert not driver.step()


def test_cancelling_one_harms_no_other_and_unknown_ones_are_ignored() -> None:
    driver = Driver(blocks=40, context=200, max_sequences=2)
    numbers = [driver.submit(prompt(30, seed=i), seed=i) for i in range(4)]
    driver.step()
    driver.cancel(numbers[2])
    driver.cancel(numbers[0])
    driver.scheduler.cancel(12345)
    driver.finish()
    assert all(driver.followed[numbers[i]].ended for i in (1, 3))


def test_a_token_computed_after_its_sequence_ended_is_discarded() -> None:
    driver = Driver(blocks=40, context=200)
    number = driver.submit(prompt(30))
    driver.step()
    driver.step(cancel_in_flight=number)
    totals = driver.scheduler.totals
    assert (totals.generated, totals.reported, totals.discarded) == (2, 1, 1)


def test_deadlines_end_a_sequence_where_it_is() -> None:
    driver = Driver(blocks=40, context=200, max_sequences=1)
    running = driver.submit(prompt(30), max_tokens=100, deadline=10)
    queued = driver.submit(prompt(30), deadline=5)
    patient = driver.submit(prompt(30), deadline=100)
    driver.step()
    driver.wait(4.9)
    assert driver.open == [running, queued, patient]
    driver.wait(0.2)
    assert driver.followed[queued].ended == "timeout"
    driver.step()
    driver.wait(5)
    assert driver.followed[running].ended == "timeout"
    driver.finish()
    assert driver.followed[patient].ended == "length"


def test_choices_after_the_first_bring_no_ids_and_have_its_prompt() -> None:
    driver = Driver(blocks=40, context=200)
    first = driver.submit(prompt(30), max_tokens=1, seed=1, group=5)
    driver.step()
    assert driver.followed[first].ended, "the first may be over before the next one comes"
    driver.submit(prompt(30), seed=2, group=5, brings=False)
    driver.finish()
    orphan = Submit(99, 6, (), SamplingParams(), 5, NEVER)
    entry = driver.scheduler.submit(orphan)
    assert entry is not None
    assert entry.finish == "error"


@pytest.mark.parametrize(
    ("length", "max_tokens", "finish"), [(0, 5, "error"), (200, 5, "error"), (5, 0, "length")]
)
def test_what_admission_should_have_refused_ends_alone(
    length: int, max_tokens: int, finish: str
) -> None:
    driver = Driver(blocks=40, context=200)
    message = Submit(1, 1, tuple(prompt(length)), SamplingParams(), max_tokens, NEVER)
    entry = driver.scheduler.submit(message)
    assert entry is not None
    assert (entry.sequence, entry.ids, entry.finish) == (1, (), finish)
    driver.scheduler.check()
    assert not driver.step()


def test_choices_of_a_group_share_their_prompts_blocks() -> None:
    driver = Driver(blocks=100, context=400, max_sequences=4, prefill_tokens=512)
    for i in range(4):
        driver.submit(prompt(200), max_tokens=8, seed=i, group=7)
    driver.step()
    driver.step()
    # 192 of 200 positions are shared: 12 blocks, and one of its own for each choice.
    assert driver.scheduler.blocks.used == 12 + 4
    driver.finish()


def test_other_requests_with_the_same_prompt_share_nothing() -> None:
    driver = Driver(blocks=100, context=400, max_sequences=4, prefill_tokens=512)
    for i in range(2):
        driver.submit(prompt(200), max_tokens=8, seed=i)
    driver.step()
    assert driver.scheduler.blocks.used == 2 * 13
    driver.finish()
