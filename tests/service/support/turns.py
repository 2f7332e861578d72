"""A scheduler over a real runner, turn by turn, without a process or a socket."""

from __future__ import annotations

import random
from pathlib import Path

from engine_child import NEVER
from flatwake_service.engine.messages import SamplingParams, Submit
from flatwake_service.engine.runner import Runner
from flatwake_service.engine.scheduler import Scheduler

HYBRID = Path(__file__).parents[2] / "fixtures" / "hybrid" / "model"
CONTEXT = 256
SEQUENCES = 8
PREFILL = 128


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
