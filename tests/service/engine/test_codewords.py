"""Codewords in concurrent streams of SmolLM2: none crosses, over 200 rounds."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from engine_child import NEVER
from flatwake_service.engine.config import EngineConfig
from flatwake_service.engine.messages import SamplingParams, Submit
from flatwake_service.engine.runner import Runner, open_runner
from flatwake_service.engine.scheduler import Scheduler
from flatwake_service.text import Tokenizer, load_tokenizer
from flatwake_service.weights import open_checkpoint

ROUNDS = 200
STREAMS = 8
SEED = 20261130
WORDS = (
    "apple", "river", "candle", "mountain", "silver", "garden", "tiger", "window", "orange",
    "castle", "pepper", "violin", "anchor", "pillow", "rocket", "basket",
)  # fmt: skip


@pytest.fixture(scope="module")
def model(smollm2: Path) -> Iterator[tuple[Runner, Tokenizer]]:
    config = EngineConfig(
        model=str(smollm2), backend="cpu", context_length=128, max_sequences=STREAMS
    )
    runner = open_runner(config, lambda *_: None)
    yield runner, load_tokenizer(open_checkpoint(smollm2))
    runner.close()


def answers(
    runner: Runner, scheduler: Scheduler, prompts: dict[int, list[int]]
) -> dict[int, list[int]]:
    """Twelve greedy tokens of each prompt, all at once; they join a step apart."""
    found: dict[int, list[int]] = {number: [] for number in prompts}
    waiting = list(prompts.items())
    while waiting or scheduler.running or scheduler.waiting:
        if waiting:
            number, ids = waiting.pop(0)
            params = SamplingParams()
            scheduler.submit(Submit(number, number, tuple(ids), params, 4, NEVER))
        batch = scheduler.schedule()
        for sequence in batch.taken:
            runner.take(sequence)
        runner.launch(batch)
        for result in runner.read():
            for entry in scheduler.commit(result).entries:
                found[entry.sequence] += entry.ids
    return found


def test_no_codeword_crosses_to_another_stream(model: tuple[Runner, Tokenizer]) -> None:
    runner, tokenizer = model
    scheduler = Scheduler(
        blocks=runner.blocks,
        slots=runner.slots,
        context=runner.context,
        max_sequences=STREAMS,
        prefill_tokens=512,
        share_prompts=True,
    )
    print("seed", SEED)
    rng = random.Random(SEED)
    repeated = 0
    for turn in range(ROUNDS):
        words = rng.sample(WORDS, STREAMS)
        prompts = {
            turn * STREAMS + i: tokenizer.encode(
                f"The codeword is {word}. " * 3 + "The codeword is"
            )
            for i, word in enumerate(words)
        }
        texts = answers(runner, scheduler, prompts)
        for i, word in enumerate(words):
            text = tokenizer.decode(texts[turn * STREAMS + i])
            others = [w for w in words if w != word and w in text]
            assert others == [], (turn, word, text)
            repeated += word in text
        assert scheduler.blocks.used == 0
        scheduler.check()
    # The test says something only where a stream says its own word.
    assert repeated > 0.9 * ROUNDS * STREAMS
