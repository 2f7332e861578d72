"""The pool of KV is sized after everything else, so that all of it stays within what was free."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from flatwake_kernels.backend import Backend
from flatwake_kernels.dtype import Dtype
from flatwake_service.engine import pool, runner
from flatwake_service.engine.config import EngineConfig
from flatwake_service.models.decoder import Decoder
from flatwake_service.models.load import Loader
from tiny_models import write_tiny

HYBRID = Path(__file__).parents[2] / "fixtures" / "hybrid" / "model"
FREE = {"llama3": 8 << 20, "qwen3": 12 << 20, "hybrid": 32 << 20}
"""Bytes that hold more than all but the pool, and less than a whole one beside it."""
CONTEXT = 512


class Ledger:
    """What a backend had allocated when the decoder was built."""

    weights = 0


@pytest.fixture
def ledger(monkeypatch: pytest.MonkeyPatch) -> Ledger:
    found = Ledger()
    build, open_backend = runner.build_decoder, runner.open_backend
    backends: list[Backend] = []

    def opening(*given: Any, **named: Any) -> Backend:
        backends.append(open_backend(*given, **named))
        return backends[-1]

    def built(loader: Loader, dtype: Dtype) -> Decoder:
        decoder = build(loader, dtype)
        found.weights = backends[-1].memory().allocated
        return decoder

    monkeypatch.setattr(runner, "open_backend", opening)
    monkeypatch.setattr(runner, "build_decoder", built)
    return found


def opened(model: Path, fraction: float, sequences: int = 32) -> tuple[runner.Runner, Backend]:
    config = EngineConfig(
        model=str(model),
        backend="cpu",
        context_length=CONTEXT,
        max_sequences=sequences,
        kv_memory_fraction=fraction,
    )
    made = runner.open_runner(config, lambda *_: None)
    return made, made.backend


@pytest.mark.parametrize("name", ["llama3", "qwen3", "hybrid"])
@pytest.mark.parametrize("fraction", [0.5, 1.0])
def test_all_that_the_engine_allocates_stays_within_what_was_free(
    name: str, fraction: float, ledger: Ledger, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    free = FREE[name]
    monkeypatch.setattr(pool, "host_free", lambda: free + pool.HOST_RESERVE)
    model = HYBRID if name == "hybrid" else write_tiny(tmp_path, name)
    made, backend = opened(model, fraction)
    allocated = backend.memory().allocated - ledger.weights
    shape = made.decoder.shape.cache
    kv = (made.blocks + 1) * shape.block_bytes(made.kv_dtype) + 33 * shape.slot_bytes
    others = allocated - kv
    # The pool had to be cut, so it took its whole share of what the others left.
    assert made.blocks < 32 * CONTEXT // 16
    assert others > 1 << 20
    assert allocated <= free
    assert kv <= fraction * (free - others) + shape.block_bytes(made.kv_dtype)
    made.close()


def test_what_fits_whole_is_not_cut(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(pool, "host_free", lambda: 1 << 34)
    made, _ = opened(write_tiny(tmp_path, "llama3"), 1.0, sequences=2)
    assert made.context == min(CONTEXT, made.model_context)
    assert made.blocks == 2 * -(-made.context // 16)
    made.close()


def test_too_little_for_anything_else_is_said_with_a_cure(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(pool, "host_free", lambda: pool.HOST_RESERVE + (1 << 20))
    with pytest.raises(pool.PoolTooSmall, match="are left for KV and state"):
        opened(write_tiny(tmp_path, "llama3"), 1.0)
