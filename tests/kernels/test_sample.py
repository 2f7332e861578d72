"""Sampling means what it says, on the reference and on the libraries alike."""

from __future__ import annotations

import numpy as np
import pytest
from flatwake_kernels import ops
from flatwake_kernels.backend import Backend
from op_bench import SEED
from sampling import Sampler, Slot


def _logits(*values: float) -> np.ndarray:
    return np.array([values], np.float32)


def test_greedy_takes_the_smallest_id_of_the_largest(any_backend: Backend) -> None:
    sampler = Sampler(any_backend, _logits(1, 3, np.nan, 3, 2), [Slot()])
    assert sampler.run() == [1]
    assert sampler.row_id.read().tolist() == [1]
    assert sampler.row_position.read().tolist() == [6]
    assert sampler.row_length.read().tolist() == [7]


def test_an_entry_without_a_row_changes_nothing(any_backend: Backend) -> None:
    sampler = Sampler(any_backend, np.ones((3, 9), np.float32), [Slot()] * 3, idle=(1,))
    assert sampler.run() == [0, -1, 0]
    assert sampler.row_id.read().tolist() == [0, -7, 0]
    assert sampler.row_length.read().tolist() == [7, 6, 7]


def test_forbidden_ids_are_never_chosen(any_backend: Backend) -> None:
    logits = np.tile(_logits(9, 8, 7, 6, 5, 99), (4, 1))
    slots = [
        Slot(),
        Slot(allowed=(3, 4)),
        Slot(banned=(0, 1), settings={"ban_below": 7}),
        Slot(banned=(0, 1), settings={"ban_below": 6}),
    ]
    assert Sampler(any_backend, logits, slots, live=5).run() == [0, 3, 2, 0]


def test_bias_and_penalties_shift_logits(any_backend: Backend) -> None:
    logits = np.tile(_logits(4, 3.5, -1, 0), (5, 1))
    prompt = ops.COUNT_PROMPT
    slots = [
        Slot(bias={3: 4.5}),
        Slot(counts={0: prompt}, settings={"repetition_penalty": 1.5}),
        Slot(counts={0: prompt}, settings={"presence_penalty": 2.0}),
        Slot(counts={0: 1}, settings={"presence_penalty": 2.0}),
        Slot(counts={0: prompt | 3, 1: 1}, settings={"frequency_penalty": 0.5}),
    ]
    sampler = Sampler(any_backend, logits, slots)
    assert sampler.run() == [3, 1, 0, 1, 1]
    counts = sampler.counts.read()[::-1]
    assert counts[0].tolist() == [0, 0, 0, 0], "without penalties nothing is counted"
    assert counts[2].tolist() == [prompt + 1, 0, 0, 0]
    assert counts[4].tolist() == [prompt | 3, 2, 0, 0]


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
        ({"min_p": 0.5}, {0, 1}),
        ({"top_p": 0.9, "min_p": 0.9}, {0}),
    ],
)
def test_filters_leave_the_ids_that_they_should(
    any_backend: Backend, settings: dict[str, float], left: set[int]
) -> None:
    # Probabilities 0.51, 0.28, 0.16, 0.05: others are impossible.
    logits = np.log(np.array([[0.51, 0.28, 0.16, 0.05, 0, 0]], np.float32) + 1e-30)
    found = set()
    for position in range(150):
        slot = Slot(settings={"temperature": 1.0, "seed": SEED, **settings})
        found |= set(Sampler(any_backend, logits, [slot], positions=[position]).run())
    assert found == left


def test_ids_that_tie_with_the_last_one_kept_are_kept(any_backend: Backend) -> None:
    found = set()
    for position in range(100):
        slot = Slot(settings={"temperature": 1.0, "seed": SEED, "top_k": 2})
        found |= set(
            Sampler(any_backend, _logits(1, 0.5, 0.5, 0), [slot], positions=[position]).run()
        )
    assert found == {0, 1, 2}


def test_samples_follow_the_distribution(reference: Backend) -> None:
    probabilities = np.array([0.4, 0.3, 0.2, 0.1])
    logits = np.tile(2 * np.log(probabilities), (500, 1)).astype(np.float32)
    slots = [Slot(settings={"temperature": 2.0, "seed": SEED + i}) for i in range(500)]
    ids = Sampler(reference, logits, slots).run()
    shares = np.bincount(ids, minlength=4) / 500
    assert np.abs(shares - probabilities).max() < 0.07, (SEED, shares)


def test_a_sample_depends_on_seed_and_position_alone(any_backend: Backend) -> None:
    logits = np.random.default_rng(SEED).standard_normal((1, 1000), np.float32)
    slot = Slot(settings={"temperature": 0.9, "top_p": 0.95, "seed": 1 << 40 | 7})
    alone = Sampler(any_backend, logits, [slot], positions=[40]).run()
    others = [Slot(settings={"temperature": 1.0, "seed": i}) for i in range(4)]
    many = np.repeat(logits, 5, axis=0)
    among = Sampler(any_backend, many, [*others, slot], positions=[1, 2, 3, 4, 40]).run()
    assert among[4] == alone[0]


def test_a_library_chooses_what_the_reference_chooses(reference: Backend, backend: Backend) -> None:
    print("seed", SEED)
    random = np.random.default_rng(SEED)
    for round_ in range(20):
        count, vocabulary = 8, [49152, 1000, 37, 151936][round_ % 4]
        logits = (random.standard_normal((count, vocabulary)) * 4).astype(np.float32)
        slots = []
        for _ in range(count):
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
            slots.append(Slot(settings=settings, counts=counts if random.random() < 0.5 else {}))
        pair = [Sampler(b, logits, slots, live=vocabulary - 3) for b in (reference, backend)]
        ids = [sampler.run() for sampler in pair]
        assert ids[0] == ids[1], (SEED, round_)
        wanted, found = pair
        assert np.array_equal(found.counts.read(), wanted.counts.read())
        assert np.array_equal(found.top_id.read(), wanted.top_id.read())
        assert np.abs(found.chosen.read() - wanted.chosen.read()).max() < 1e-5
        assert np.abs(found.top_logprob.read() - wanted.top_logprob.read()).max() < 1e-5


def test_logprobs_are_of_the_raw_logits_and_ties_go_to_the_smaller_id(
    any_backend: Backend,
) -> None:
    logits = _logits(0, 2, 2, 1)
    slot = Slot(settings={"logprobs": 3}, bias={3: 10.0})
    sampler = Sampler(any_backend, logits, [slot])
    assert sampler.run() == [3]
    wide = logits[0].astype(np.float64)
    wanted = wide - np.log(np.exp(wide).sum())
    assert sampler.chosen.read()[0] == pytest.approx(wanted[3], abs=1e-6)
    assert sampler.top_id.read()[0].tolist() == [1, 2, 3, -7, -7, -7]
    assert sampler.top_logprob.read()[0, :3] == pytest.approx(wanted[[1, 2, 3]], abs=1e-6)
