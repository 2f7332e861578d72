"""The engine process as it is served: the worker's own command line over a tiny real model."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest
from engine_child import Follower, eventually, run, submit_message
from flatwake_service.engine.client import EngineClient, EngineEnded
from flatwake_service.engine.config import EngineConfig
from tiny_models import write_tiny

CONTEXT = 160


def config(model: Path) -> EngineConfig:
    return EngineConfig(
        model=str(model), backend="reference", context_length=CONTEXT, check_invariants=True
    )


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny(tmp_path_factory.mktemp("model"), "qwen2")


def test_a_real_model_is_served_and_the_same_request_gets_the_same_tokens(model: Path) -> None:
    async def scenario() -> None:
        client = await EngineClient.start(config(model))
        try:
            started = await client.ready()
            assert started.context == CONTEXT
            assert started.backend == "reference"
            assert started.bandwidth_bytes > 0
            assert started.model_bytes > 0
            assert client.progress is not None
            assert client.progress.phase == "warming"
            mapped = Path(f"/proc/{client.pid}/maps").read_text()
            assert "numpy" in mapped
            assert "torch" not in mapped
            followers = [Follower() for _ in range(6)]
            for number, follower in enumerate(followers, 1):
                message = submit_message(number, [3, 1, 4, 1, 5] * 20, max_tokens=500, seed=5)
                client.submit(message, follower)
            for follower in followers:
                await follower.over()
            assert len({tuple(follower.ids) for follower in followers}) == 1
            assert len(followers[0].ids) == CONTEXT - 100
            assert followers[0].finish == "length"
        finally:
            await client.close()

    run(scenario(), 120)


@pytest.mark.parametrize("early", [True, False], ids=["before it connects", "once it waits"])
def test_an_engine_starts_once_it_knows_the_vocabulary(model: Path, early: bool) -> None:
    """No id from the tokenizer's size on is ever sampled."""

    async def scenario() -> None:
        client = await EngineClient.start(
            msgspec.structs.replace(config(model), vocabulary_follows=True)
        )
        try:
            if not early:
                await eventually(
                    lambda: client.progress and client.progress.done == client.progress.total
                )
                assert client.started is None
            client.tell_vocabulary(5)
            await client.ready()
            follower = Follower()
            client.submit(submit_message(1, [3, 1, 4], max_tokens=40, seed=5), follower)
            await follower.over()
            assert len(follower.ids) == 40
            assert max(follower.ids) < 5
        finally:
            await client.close()

    run(scenario(), 120)


def test_an_engine_that_waits_for_the_vocabulary_can_be_closed(model: Path) -> None:
    async def scenario() -> None:
        client = await EngineClient.start(
            msgspec.structs.replace(config(model), vocabulary_follows=True)
        )
        await eventually(lambda: client.progress and client.progress.done == client.progress.total)
        await client.close()
        assert client.ended.is_set()
        assert client.failure is None

    run(scenario(), 120)


@pytest.mark.parametrize("damage", ["missing", "empty", "torn", "unknown"])
def test_a_model_that_cannot_be_loaded_is_named_with_its_reason(
    model: Path, tmp_path: Path, damage: str
) -> None:
    broken = tmp_path / "model"
    if damage != "missing":
        broken.mkdir()
    if damage in ("torn", "unknown"):
        for file in model.iterdir():
            data = file.read_bytes()
            torn = damage == "torn" and file.suffix == ".safetensors"
            (broken / file.name).write_bytes(data[: len(data) // 2] if torn else data)
    if damage == "unknown":
        settings = json.loads((broken / "config.json").read_text())
        settings["architectures"] = ["NoSuchModel"]
        (broken / "config.json").write_text(json.dumps(settings))

    async def scenario() -> None:
        client = await EngineClient.start(config(broken))
        try:
            with pytest.raises(EngineEnded) as caught:
                await client.ready()
        finally:
            await client.close()
        expected = {
            "missing": "ModelMissing",
            "unknown": "ModelUnsupported",
            "torn": "ModelUnreadable",
            "empty": "ModelMissing",
        }
        assert caught.value.failed.reason == expected[damage], caught.value.failed
        named = "NoSuchModel" if damage == "unknown" else str(broken)
        assert named in caught.value.failed.message

    run(scenario(), 120)
