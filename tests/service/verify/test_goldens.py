"""Greedy tokens equal transformers', position by position, with float activations."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from flatwake_kernels.backends import BackendName, unavailable
from flatwake_service.engine.config import EngineConfig
from flatwake_service.engine.runner import open_runner
from flatwake_service.verify.replay import replay
from flatwake_service.verify.trace import LEAST_SHARE, Trace, compare, load
from tiny_models import TINY, write_tiny

GOLDENS = Path(__file__).parent / "goldens"
HYBRID = Path(__file__).parents[2] / "fixtures" / "hybrid" / "model"
BACKENDS: tuple[BackendName, ...] = ("reference", "cpu")


def check(
    model: Path, golden: str, backend: BackendName, *, chunk: int, counted: float, most: int = 1000
) -> None:
    """`most`: the positions of each prompt that are compared."""
    traces, notes = load(GOLDENS / f"{golden}.npz")
    traces = [shortened(trace, most) for trace in traces]
    config = EngineConfig(
        model=str(model),
        backend=backend,
        activations="float",
        context_length=max(len(t.prompt) + len(t.tokens) for t in traces),
        prefill_tokens=chunk,
    )
    runner = open_runner(config, lambda *_: None)
    found = compare(traces, replay(runner, traces))
    runner.close()
    print(f"{golden} on {backend}: {found}, oracle {notes}")
    assert found.mismatches == ()
    assert found.share >= counted
    assert found.error < 1e-3


def shortened(trace: Trace, most: int) -> Trace:
    return Trace(trace.prompt, trace.tokens[:most], trace.top_ids[:most], trace.top_logits[:most])


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", TINY)
def test_a_tiny_model_answers_as_transformers_does(
    name: str, backend: BackendName, tmp_path: Path
) -> None:
    assert unavailable(backend) is None
    check(write_tiny(tmp_path, name), name, backend, chunk=64, counted=0.98)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("chunk", [64, 128])
def test_the_hybrid_fixture_answers_as_transformers_does(backend: BackendName, chunk: int) -> None:
    check(HYBRID, "hybrid", backend, chunk=chunk, counted=0.98)


def test_the_gpu_kernels_answer_as_transformers_does_when_emulated() -> None:
    assert unavailable("emulation") is None
    check(HYBRID, "hybrid", "emulation", chunk=64, counted=0.98, most=8)  # a second a position


def test_a_random_model_chooses_clearly_and_not_always_the_same() -> None:
    """`tests/gpu/check_golden.py` compares it: few tokens, or one of them, would say little."""
    traces, _ = load(GOLDENS / "random-0.8B.npz")
    margins = np.concatenate([t.margins for t in traces])
    counted = margins >= max(t.errors.max() for t in traces if t.errors is not None)
    tokens = np.concatenate([t.tokens for t in traces])[counted]
    found, often = np.unique(tokens, return_counts=True)
    print(
        f"{counted.sum()} of {len(margins)} count, {len(found)} tokens, at most {often.max()} times"
    )
    assert counted.mean() >= LEAST_SHARE
    assert len(found) >= 60
    assert often.max() <= 0.1 * len(tokens)


def test_smollm2_answers_twenty_prompts_as_transformers_does(smollm2: Path) -> None:
    traces, _ = load(GOLDENS / "smollm2-135m.npz")
    assert len(traces) == 20
    assert all(len(t.tokens) == 64 for t in traces)
    check(smollm2, "smollm2-135m", "cpu", chunk=512, counted=0.98)
