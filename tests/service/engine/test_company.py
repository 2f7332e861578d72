"""The scheduler over the real runner: a sequence's tokens don't depend on who else is served."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest
from engine_child import NEVER
from flatwake_kernels.backends import unavailable
from flatwake_service.engine.config import EngineConfig
from flatwake_service.engine.messages import Submit
from flatwake_service.engine.runner import Runner, open_runner
from tiny_models import write_tiny
from turns import CONTEXT, HYBRID, PREFILL, SEQUENCES, Turns, alone, sampling, submit

LENGTHS = (1, 15, 16, 17, 63, 64, 65, 127, 128, 129, 191, 193)
"""Around the boundaries of blocks (16), chunks' starts (64) and whole chunks (128)."""


@pytest.fixture(
    scope="module",
    params=[
        "reference-smollm2",
        "reference-qwen3",
        "cpu-llama3",
        "cpu-llama3-ahead",
        "cpu-hybrid",
        "cpu-hybrid-ahead",
    ],
)
def runner(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Runner]:
    backend, name, *ahead = request.param.split("-")
    assert unavailable(backend) is None, "`make build` builds it"
    hybrid = name == "hybrid"
    folder = HYBRID if hybrid else write_tiny(tmp_path_factory.mktemp("model"), name)
    config = EngineConfig(
        model=str(folder),
        backend=backend,
        context_length=CONTEXT,
        max_sequences=SEQUENCES,
        prefill_tokens=PREFILL,
        look_ahead="on" if ahead else "off",
    )
    opened = open_runner(config, lambda phase, done, total: None)
    assert opened.recurrent is hybrid
    yield opened
    assert bool(opened.steps_ahead) is bool(ahead)
    opened.close()


def test_tokens_are_the_same_alone_and_among_others_that_come_go_and_are_preempted(
    runner: Runner,
) -> None:
    seed = 3
    print("seed", seed)
    rng = random.Random(seed)
    followed = [submit(number, length, 40) for number, length in enumerate(LENGTHS, 1)]
    expected = {message.sequence: alone(runner, message) for message in followed}
    turns = Turns(runner, blocks=24)
    others, waiting = [], list(followed)
    for number in range(1000, 1120):
        if waiting and rng.random() < 0.3:
            turns.submit(waiting.pop(rng.randrange(len(waiting))))
        if rng.random() < 0.4:
            turns.submit(submit(number, rng.randrange(1, 60), rng.randrange(20, 150)))
            others.append(number)
        if others and rng.random() < 0.3:
            turns.scheduler.cancel(others.pop(rng.randrange(len(others))))
        turns.step()
    for message in waiting:
        turns.submit(message)
    output = turns.finish()
    assert turns.scheduler.totals.preemptions > 5
    for number, ids in expected.items():
        assert output[number] == ids, f"sequence {number}, prompt of {LENGTHS[number - 1]}"


def test_choices_that_share_their_prompts_blocks_get_what_each_gets_alone(runner: Runner) -> None:
    messages = [Submit(n, 1, submit(1, 150, 1).ids, sampling(n), 20, NEVER) for n in range(1, 5)]
    expected = {message.sequence: alone(runner, message) for message in messages}
    turns = Turns(runner, blocks=40)
    for message in messages:
        turns.submit(message)
    assert turns.finish() == expected
    if not runner.recurrent:
        assert turns.scheduler.blocks.touched < 4 * 10, "nothing was shared"
