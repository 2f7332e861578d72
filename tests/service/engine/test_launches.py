"""What a GPU's step costs in launches, counted on the emulation: each is a node of its graph."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from flatwake_kernels.backends import open_backend, unavailable
from flatwake_kernels.dtype import Dtype
from flatwake_kernels.native import NativePlan
from flatwake_kernels.plan import Plan
from flatwake_service.engine.config import EngineConfig
from flatwake_service.engine.runner import Runner
from flatwake_service.models.load import Loader
from flatwake_service.models.registry import build_decoder
from flatwake_service.weights import open_checkpoint
from tiny_models import write_tiny
from turns import HYBRID

AROUND = 10
"""Embedding, gather, head, three of sampling; three norms and a convolution that nobody joins."""


def opened(model: Path) -> Iterator[Runner]:
    """A runner in bfloat16, as on a GPU: emulated engines compute in float32 else."""
    assert unavailable("emulation") is None, "`make emulation` builds it"
    config = EngineConfig(
        model=str(model), backend="emulation", context_length=1024, max_sequences=8,
        prefill_tokens=256,
    )  # fmt: skip
    backend = open_backend("emulation")
    loader = Loader(open_checkpoint(model), backend, "float", lambda done, total: None)
    decoder = build_decoder(loader, Dtype.BF16)
    runner = Runner(backend, decoder, config, Dtype.BF16)
    yield runner
    runner.close()


@pytest.fixture(scope="module")
def hybrid() -> Iterator[Runner]:
    yield from opened(HYBRID)


@pytest.fixture(scope="module")
def dense(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runner]:
    yield from opened(write_tiny(tmp_path_factory.mktemp("model"), "llama3"))


def of(plan: Plan) -> int:
    assert isinstance(plan, NativePlan)
    return plan.launches()


def layers(plan: Plan) -> tuple[int, int]:
    """(delta net, attention) layers of a decode plan."""
    names = [op.name for op in plan.ops]
    return names.count("gdn_step"), names.count("attention_decode")


@pytest.mark.parametrize("rows", [1, 8])
def test_a_hybrids_decode_step_is_five_or_seven_launches_a_layer(hybrid: Runner, rows: int) -> None:
    plan = hybrid.plans.decode[rows]
    delta_net, attention = layers(plan)
    assert (delta_net, attention) != (0, 0)
    assert of(plan) <= 5 * delta_net + 7 * attention + AROUND


def test_a_chunks_launches_do_not_grow_with_its_length(hybrid: Runner, dense: Runner) -> None:
    for runner in (hybrid, dense):
        counts = {rows: of(plan) for rows, plan in runner.plans.chunk.items()}
        assert min(counts) == 16
        assert max(counts) == 256
        assert len(set(counts.values())) == 1, counts
