"""Sampling by the HIP kernels is what the reference says, for every kind of setting."""

from __future__ import annotations

import numpy as np
import pytest
from flatwake_kernels.backend import Backend
from op_bench import SEED
from sampling import Sampler, Slot

VOCABULARIES = (37, 1000, 9001)


def _random_slot(random: np.random.Generator, vocabulary: int) -> Slot:
    settings = {
        "temperature": random.choice([0.0, 0.3, 1.0, 2.0]),
        "top_k": int(random.choice([0, 1, 20, 200])),
        "top_p": random.choice([1.0, 0.95, 0.4]),
        "min_p": random.choice([0.0, 0.05]),
        "repetition_penalty": random.choice([1.0, 1.3]),
        "frequency_penalty": random.choice([0.0, 0.4]),
        "seed": int(random.integers(1 << 62)),
        "logprobs": int(random.choice([-1, 0, 5])),
    }
    counts = {int(i): 2 for i in random.integers(0, vocabulary, 5)}
    return Slot(settings=settings, counts=counts if random.random() < 0.5 else {})


@pytest.mark.parametrize("vocabulary", VOCABULARIES)
def test_a_choice_is_the_references(vocabulary: int, reference: Backend, backend: Backend) -> None:
    print("seed", SEED)
    random = np.random.default_rng([SEED, vocabulary])
    for round_ in range(4):
        logits = (random.standard_normal((8, vocabulary)) * 4).astype(np.float32)
        slots = [_random_slot(random, vocabulary) for _ in range(8)]
        pair = [Sampler(b, logits, slots, live=vocabulary - 3) for b in (reference, backend)]
        wanted, found = (s.run() for s in pair)
        assert found == wanted, (SEED, round_)
        assert np.array_equal(pair[1].counts.read(), pair[0].counts.read())
        assert np.array_equal(pair[1].top_id.read(), pair[0].top_id.read())


def test_masks_bans_and_bias_hold(backend: Backend) -> None:
    logits = np.tile(np.array([[9, 8, 7, 6, 5, 99]], np.float32), (5, 1))
    slots = [
        Slot(),
        Slot(allowed=(3, 4)),
        Slot(banned=(0, 1), settings={"ban_below": 7}),
        Slot(banned=(0, 1), settings={"ban_below": 6}),
        Slot(bias={3: 4.5}),
    ]
    assert Sampler(backend, logits, slots, live=5).run() == [0, 3, 2, 0, 3]


def test_greedy_takes_the_smallest_id_of_the_largest_and_no_nan(backend: Backend) -> None:
    logits = np.array([[1, 3, np.nan, 3, 2], [np.nan] * 5], np.float32)
    sampler = Sampler(backend, logits, [Slot(), Slot()])
    assert sampler.run() == [1, 0]
    assert sampler.row_id.read().tolist() == [1, 0]


def test_an_entry_without_a_row_changes_nothing(backend: Backend) -> None:
    sampler = Sampler(backend, np.ones((3, 9), np.float32), [Slot()] * 3, idle=(1,))
    assert sampler.run() == [0, -1, 0]
    assert sampler.row_id.read().tolist() == [0, -7, 0]
    assert sampler.row_length.read().tolist() == [7, 6, 7]


@pytest.mark.parametrize(
    ("settings", "left"),
    [
        ({}, {0, 1, 2, 3}),
        ({"top_k": 2}, {0, 1}),
        ({"top_k": 1}, {0}),
        ({"top_k": 99}, {0, 1, 2, 3}),
        ({"top_p": 0.5}, {0}),
        ({"top_p": 0.52}, {0, 1}),
        ({"top_p": 0.0}, {0}),
        ({"top_k": 2, "top_p": 0.7}, {0, 1}),
        ({"top_k": 2, "top_p": 0.6}, {0}),
        ({"min_p": 0.3}, {0, 1, 2}),
        ({"top_p": 0.9, "min_p": 0.9}, {0}),
    ],
)
def test_filters_leave_the_ids_that_they_should(
    backend: Backend, settings: dict[str, float], left: set[int]
) -> None:
    # Probabilities 0.51, 0.28, 0.16, 0.05: others are impossible.
    logits = np.log(np.array([[0.51, 0.28, 0.16, 0.05, 0, 0]], np.float32) + 1e-30)
    slots = [Slot(settings={"temperature": 1.0, "seed": SEED, **settings})] * 60
    sampler = Sampler(backend, np.tile(logits, (60, 1)), slots, positions=list(range(60)))
    assert set(sampler.run()) == left


def test_log_probabilities_are_those_of_the_raw_logits(
    reference: Backend, backend: Backend
) -> None:
    random = np.random.default_rng(SEED)
    logits = (random.standard_normal((3, 5000)) * 3).astype(np.float32)
    slots = [Slot(settings={"logprobs": n}) for n in (0, 20, -1)]
    pair = [Sampler(b, logits, slots, live=4990) for b in (reference, backend)]
    for sampler in pair:
        sampler.run()
    assert np.array_equal(pair[0].top_id.read(), pair[1].top_id.read())
    for name in ("chosen", "top_logprob"):
        wanted, found = (getattr(s, name).read() for s in pair)
        assert np.abs(wanted - found).max() < 2e-5, name
