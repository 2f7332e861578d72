"""Steps launched before the last one's ids are read: the same tokens, and none too many."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import msgspec
import pytest
from flatwake_service.engine.config import EngineConfig
from flatwake_service.engine.runner import Runner, open_runner
from tiny_models import write_tiny
from turns import CONTEXT, HYBRID, PREFILL, SEQUENCES, Turns, submit

LENGTHS = (1, 17, 64, 100, 129)


@pytest.fixture(scope="module", params=["llama3", "hybrid"])
def runners(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[list[Runner]]:
    """Of one model: one that never looks ahead, and one that does wherever it may."""
    folder = tmp_path_factory.mktemp("model")
    model = HYBRID if request.param == "hybrid" else write_tiny(folder, request.param)
    opened = [
        open_runner(
            EngineConfig(
                model=str(model), backend="cpu", context_length=CONTEXT,
                max_sequences=SEQUENCES, prefill_tokens=PREFILL, look_ahead=look_ahead,
            ),
            lambda phase, done, total: None,
        )
        for look_ahead in ("off", "on")
    ]  # fmt: skip
    yield opened
    for runner in opened:
        runner.close()


def test_a_runner_that_looks_ahead_gives_the_same_tokens_and_discards_what_nobody_wants(
    runners: list[Runner],
) -> None:
    plain, ahead = runners
    messages = [submit(number, length, 60) for number, length in enumerate(LENGTHS, 1)]
    turns = Turns(plain, CONTEXT)
    for message in messages:
        turns.submit(message)
    free = turns.finish()
    # Ends that nobody knows before their token is read, one after the other.
    stopped = [
        msgspec.structs.replace(
            message,
            sampling=msgspec.structs.replace(
                message.sampling, stop_ids=(free[message.sequence][10 + 7 * index],)
            ),
        )
        for index, message in enumerate(messages)
    ]
    found, before = [], ahead.steps_ahead
    for runner in runners:
        turns = Turns(runner, CONTEXT)
        for message in stopped:
            turns.submit(message)
        found.append(turns.finish())
        totals = turns.scheduler.totals
        assert totals.generated == totals.reported + totals.discarded
        assert totals.reported == sum(map(len, found[-1].values()))
        assert (turns.scheduler.blocks.used, turns.scheduler.slots.used) == (0, 0)
        assert (totals.discarded > 0) is (runner is ahead)
    assert found[0] == found[1]
    assert plain.steps_ahead == 0
    assert ahead.steps_ahead - before > 10


def test_a_step_ahead_is_no_longer_the_one_that_was_read(runners: list[Runner]) -> None:
    """Logits are of one step: reading those of the next one instead would go unnoticed."""
    turns = Turns(runners[1], CONTEXT)
    turns.submit(submit(1, 20, 40))
    turns.step()
    turns.step()
    with pytest.raises(AssertionError, match="don't look ahead"):
        runners[1].logits(1)
    turns.finish()


def test_steps_ahead_leave_no_python_objects_behind(runners: list[Runner]) -> None:
    """A tuple made of a generator once did, one a step, in a free list that holds thousands."""
    runner = runners[1]

    def serve(first: int) -> int:
        turns = Turns(runner, CONTEXT)
        for number in range(first, first + 60):
            turns.submit(submit(number, 20 + number % 50, 16 + number % 16))
        before = runner.steps_ahead
        turns.finish()
        return runner.steps_ahead - before

    serve(1)
    serve(1)
    before = sys.getallocatedblocks()
    steps = serve(1) + serve(1)
    assert steps > 50
    grown = sys.getallocatedblocks() - before
    print(grown, steps)
    assert grown < steps / 4
