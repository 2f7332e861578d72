"""The exactness gate's verdict: what passes, and above all what doesn't."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from flatwake_service.cli.verify import _report
from flatwake_service.verify.trace import LEAST_SHARE, Trace, compare, load, save, top_of

VOCABULARY, POSITIONS = 500, 200


def trace_of(logits: np.ndarray) -> Trace:
    tops = [top_of(row) for row in logits]
    return Trace(
        prompt=(1,),
        tokens=tuple(int(ids[0]) for ids, _ in tops),
        top_ids=np.stack([ids for ids, _ in tops]),
        top_logits=np.stack([values for _, values in tops]),
    )


def drawn(seed: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(0, 4, (POSITIONS, VOCABULARY)).astype(np.float32)


def test_a_wrong_model_is_not_equal_even_where_the_only_positions_that_count_agree(
    capsys: pytest.CaptureFixture[str],
) -> None:
    oracle = drawn(1)
    oracle[7, 3] = 100  # one position that any model would get right by so large a margin
    ours = drawn(2)
    ours[7, 3] = 95
    found = compare([trace_of(oracle)], [ours])
    assert (found.counted, found.mismatches) == (1, ())
    assert not found.enough
    assert not found.equal
    _report("float", found)
    said = capsys.readouterr().out
    assert said.startswith("NOT EQUAL (too few positions count): float")
    assert "1 of 200 positions (0.5%, at least 80% must)" in said


def test_the_same_model_with_a_little_noise_is_equal(capsys: pytest.CaptureFixture[str]) -> None:
    oracle = drawn(1)
    noise = np.random.default_rng(3).normal(0, 1e-4, oracle.shape).astype(np.float32)
    found = compare([trace_of(oracle)], [oracle + noise])
    assert found.equal
    assert found.share > LEAST_SHARE
    _report("float", found)
    assert capsys.readouterr().out.startswith("equal: float")


def test_a_token_that_differs_where_it_counts_is_not_equal() -> None:
    oracle = drawn(1)
    trace = trace_of(oracle)
    ours = oracle.copy()
    # The first and second choice trade places: the error is the margin itself.
    position = int(np.argmin(trace.margins))
    first, second = trace.top_ids[position, :2]
    ours[position, [first, second]] = ours[position, [second, first]]
    found = compare([trace], [ours])
    assert len(found.mismatches) == 1
    assert found.share == 1.0
    assert not found.equal


def test_a_lower_share_is_asked_for_by_name() -> None:
    oracle = drawn(1)
    noise = np.random.default_rng(3).normal(0, 0.2, oracle.shape).astype(np.float32)
    share = compare([trace_of(oracle)], [oracle + noise]).share
    assert 0.5 < share < LEAST_SHARE
    assert not compare([trace_of(oracle)], [oracle + noise]).equal
    assert compare([trace_of(oracle)], [oracle + noise], least=0.5).enough


def test_logits_that_are_no_numbers_are_not_equal() -> None:
    oracle = drawn(1)
    other = drawn(4)
    broken = other.copy()
    broken[0, trace_of(other).top_ids[0, 1]] = np.nan
    found = compare([trace_of(oracle), trace_of(other)], [oracle, broken])
    assert found.counted == 0
    assert not found.equal


def test_nothing_compared_is_not_equal() -> None:
    assert not compare([], []).equal


def test_an_oracle_that_knows_its_own_error_says_which_positions_count(tmp_path: Path) -> None:
    """Ours may err more: what it then chooses otherwise at a position that counts is a mismatch."""
    oracle = drawn(1)
    own = np.full(POSITIONS, 0.1, np.float32)
    own[5] = 0.2
    trace = replace(trace_of(oracle), fed=tuple(range(POSITIONS)), errors=own)
    save(tmp_path / "kept.npz", [trace], {})
    (kept,), _ = load(tmp_path / "kept.npz")
    assert kept.lead == tuple(range(POSITIONS)) != trace.tokens
    noise = np.random.default_rng(3).normal(0, 1, oracle.shape).astype(np.float32)
    found = compare([kept], [oracle + noise])
    assert found.error == np.float32(0.2)
    assert found.counted == int((trace.margins >= 0.2).sum())
    assert found.mismatches
    assert compare([kept], [oracle]).equal
