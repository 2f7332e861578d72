"""The scheduler over the real runner: a sequence's tokens don't depend on who else is served."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from engine_child import NEVER
from flatwake_kernels.backends import unavailable
from flatwake_service.engine.config import EngineConfig
from flatwake_service.engine.messages import SamplingParams, Submit
from flatwake_service.engine.runner import Runner, open_runner
from flatwake_service.engine.scheduler import Scheduler
from tiny_models import write_tiny

HYBRID = Path(__file__).parents[2] / "fixtures" / "hybrid" / "model"
CONTEXT = 256
SEQUENCES = 8
PREFILL = 128
LENGTHS = (1, 15, 16, 17, 63, 64, 65, 127, 128, 129, 191, 193)
"""Around the boundaries of blocks (16), chunks' starts (64) and whole chunks (128)."""


@pytest.fixture(
    scope="module",
    params=["reference-smollm2", "reference-qwen3", "cpu-llama3", "cpu-hybrid"],
)
def runner(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Runner]:
    backend, name = request.param.split("-")
    assert unavailable(backend) is None, "`make build` builds it"
    hybrid = name == "hybrid"
    folder = HYBRID if hybrid else write_tiny(tmp_path_factory.mktemp("model"), name)
    config = EngineConfig(
        model=str(folder),
        backend=backend,
        context_length=CONTEXT,
        max_sequences=SEQUENCES,
        prefill_tokens=PREFILL,
    )
    opened = open_runner(config, lambda phase, done, total: None)
    assert opened.recurrent is hybrid
    yield opened
    opened.close()


def sampling(seed: int) -> SamplingParams:
    """Greedy for some, seeded with everything switched on for others."""
    if seed % 3 == 0:
        return SamplingParams()
    return SamplingParams(
        temperature=0.9,
        top_p=0.95,
        top_k=40,
        min_p=0.01,
        repetition_penalty=1.1 if seed % 3 == 1 else 1.0,
        presence_penalty=0.2 if seed % 3 == 1 else 0.0,
        seed=seed,
    )


def submit(number: int, length: int, tokens: int) -> Submit:
    rng = random.Random(number)
    ids = tuple(rng.randrange(400) for _ in range(length))
    return Submit(number, number, ids, sampling(number), tokens, NEVER)


class Turns:
    """A scheduler over the runner, with a pool as small as wanted."""

    def __init__(self, runner: Runner, blocks: int) -> None:
        self.runner = runner
        self.scheduler = Scheduler(
            blocks=blocks,
            slots=SEQUENCES,
            context=runner.context,
            max_sequences=SEQUENCES,
            prefill_tokens=PREFILL,
            share_prompts=not runner.recurrent,
        )
        self.output: dict[int, list[int]] = {}

    def submit(self, message: Submit) -> None:
        assert self.scheduler.submit(message) is None
        self.output[message.sequence] = []

    def step(self) -> bool:
        batch = self.scheduler.schedule()
        self.scheduler.check()
        self.scheduler.check_writes(batch)
        if batch.empty:
            return False
        for sequence in batch.taken:
            self.runner.take(sequence)
        self.runner.launch(batch)
        for result in self.runner.read():
            for entry in self.scheduler.commit(result).entries:
                self.output[entry.sequence] += entry.ids
        return True

    def finish(self) -> dict[int, list[int]]:
        while self.step():
            pass
        return self.output


def alone(runner: Runner, message: Submit) -> list[int]:
    turns = Turns(runner, CONTEXT // 16)
    turns.submit(message)
    return turns.finish()[message.sequence]


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
