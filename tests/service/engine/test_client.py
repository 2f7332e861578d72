"""The engine process, from the API process's side: a real child over a fake device."""

from __future__ import annotations

import asyncio
import gc
import os
import random
import signal
import sys
import time
from pathlib import Path

import pytest
from engine_child import Follower, eventually, fake_config, fake_engine, run, submit_message
from fake_runner import alone
from fake_worker import Behaviour
from flatwake_service.engine.client import EngineClient, EngineEnded
from flatwake_service.engine.messages import SamplingParams, SequenceTokens, Stats


def prompt(length: int, seed: int = 0) -> list[int]:
    rng = random.Random(seed * 1000 + length)
    return [rng.randrange(97) for _ in range(length)]


async def idle(client: EngineClient, steps: int = 1) -> Stats:
    """The values that the engine sends on becoming idle."""
    await eventually(lambda: client.stats.steps >= steps and not client.stats.sequences_running)
    return client.stats


@pytest.mark.parametrize("plain", [False, True], ids=["uvloop", "asyncio"])
def test_streams_in_company_get_what_each_gets_alone(plain: bool) -> None:
    async def scenario() -> None:
        async with fake_engine(behaviour=Behaviour(blocks=40, context=200)) as client:
            started = await client.ready()
            assert (started.context, started.kv_tokens) == (200, 640)
            assert client.progress is not None
            followers = []
            for number in range(1, 13):
                ids, follower = prompt(5 + 13 * number), Follower()
                client.submit(submit_message(number, ids, max_tokens=60, seed=number), follower)
                followers.append((number, ids, follower))
            for number, ids, follower in followers:
                await follower.over()
                sampling = SamplingParams(temperature=1.0, seed=number)
                assert (follower.ids, follower.finish) == alone(tuple(ids), sampling, 60, 200)
                assert follower.starts == 1
                assert follower.stamps == sorted(follower.stamps)
            stats = await idle(client)
            assert stats.preemptions > 0
            assert stats.generated_tokens == stats.reported_tokens + stats.discarded_tokens
            assert stats.blocks_used == stats.slots_used == 0
            assert stats.prompt_tokens == sum(len(ids) for _, ids, _ in followers)
            assert stats.decode_seconds is not None
            assert sum(stats.decode_seconds.counts) > 60

    run(scenario(), plain=plain)


def test_the_first_token_is_here_before_the_engine_reads_its_second_step(tmp_path: Path) -> None:
    hold = tmp_path / "hold"
    os.mkfifo(hold)

    async def scenario() -> None:
        async with fake_engine(fake_config(hold=str(hold), hold_step=2)) as client:
            await client.ready()
            follower = Follower()
            client.submit(submit_message(1, prompt(9), max_tokens=3), follower)
            await follower.until(lambda one: one.ids)
            # Opening the pipe succeeds once the engine is waiting at its other end.
            writer = await asyncio.to_thread(os.open, hold, os.O_WRONLY)
            assert len(follower.ids) == 1
            os.close(writer)
            await follower.over()
            assert len(follower.ids) == 3

    run(scenario())


def test_a_cancelled_sequence_is_freed_and_its_sink_left_alone() -> None:
    async def scenario() -> None:
        async with fake_engine(behaviour=Behaviour(part_seconds=0.002)) as client:
            await client.ready()
            gone, stays = Follower(), Follower()
            client.submit(submit_message(1, prompt(9), max_tokens=400), gone)
            client.submit(submit_message(2, prompt(10), max_tokens=30), stays)
            await gone.until(lambda one: len(one.ids) > 2)
            client.cancel(1)
            known = len(gone.ids)
            client.cancel(1)
            client.cancel(77)
            await stays.over()
            assert stays.finish == "length"
            assert (len(gone.ids), gone.finish, gone.failure) == (known, None, None)
            stats = await idle(client)
            assert stats.blocks_used == 0

    run(scenario())


def test_two_hundred_disconnects_at_random_moments_leave_nothing() -> None:
    rng = random.Random(11)

    async def one(client: EngineClient, number: int) -> None:
        follower = Follower()
        ids = prompt(rng.randrange(1, 150), number)
        client.submit(submit_message(number, ids, max_tokens=100, seed=number), follower)
        wanted = rng.choice([0, 0, 1, 3, 10])
        await follower.until(lambda f: len(f.ids) >= wanted)
        client.cancel(number)

    async def scenario() -> None:
        async with fake_engine(behaviour=Behaviour(blocks=30, context=300)) as client:
            await client.ready()
            await asyncio.gather(*(one(client, number) for number in range(1, 201)))
            last = Follower()
            client.submit(submit_message(999, prompt(5)), last)
            await last.over()
            stats = await idle(client)
            assert (stats.blocks_used, stats.slots_used, stats.sequences_waiting) == (0, 0, 0)
            assert stats.generated_tokens == stats.reported_tokens + stats.discarded_tokens

    run(scenario())


def test_over_200_rounds_no_stream_sees_anothers_tokens_and_nothing_piles_up() -> None:
    seed = 17
    print("seed", seed)
    rng = random.Random(seed)

    async def play(client: EngineClient, turn: int) -> None:
        followers = []
        for number in range(turn * 8, turn * 8 + 8):
            ids, follower = prompt(rng.randrange(1, 60), number), Follower()
            client.submit(submit_message(number, ids, max_tokens=12, seed=number), follower)
            sampling = SamplingParams(temperature=1.0, seed=number)
            followers.append((follower, alone(tuple(ids), sampling, 12, 300)))
        for follower, expected in followers:
            await follower.over()
            assert (follower.ids, follower.finish) == expected

    async def scenario() -> None:
        sizes = []
        async with fake_engine(
            behaviour=Behaviour(blocks=20, context=300, part_seconds=0.0002)
        ) as client:
            await client.ready()
            for turn in range(200):
                await play(client, turn)
                if turn in (20, 199):
                    gc.collect()
                    sizes.append(sys.getallocatedblocks())
            assert client.stats.preemptions > 50
            assert not client._sinks
        assert sizes[1] - sizes[0] < 400, "1,432 sequences left something behind"

    run(scenario(), 120)


def test_deadlines_reach_the_sink() -> None:
    async def scenario() -> None:
        config = fake_config(max_sequences=1)
        async with fake_engine(config, behaviour=Behaviour(part_seconds=0.005)) as client:
            await client.ready()
            running, queued = Follower(), Follower()
            now = time.monotonic()
            client.submit(submit_message(1, prompt(9), max_tokens=500, deadline=now + 1), running)
            client.submit(submit_message(2, prompt(9), deadline=now + 0.2), queued)
            await queued.over()
            assert (queued.finish, queued.ids, queued.starts) == ("timeout", [], 0)
            assert running.finish is None
            await running.over()
            assert running.finish == "timeout"
            assert running.ids

    run(scenario())


@pytest.mark.parametrize("most", [1, 10], ids=["at its last token", "before"])
def test_a_sink_with_a_bug_hears_that_its_sequence_is_over(most: int) -> None:
    class Buggy(Follower):
        def tokens(self, entry: SequenceTokens, stamp: float) -> None:
            raise ZeroDivisionError("a bug")

    async def scenario() -> None:
        told: list[dict[str, object]] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context))
        async with fake_engine() as client:
            await client.ready()
            buggy, other = Buggy(), Follower()
            client.submit(submit_message(1, prompt(9), max_tokens=most), buggy)
            client.submit(submit_message(2, prompt(9)), other)
            await buggy.over()
            assert buggy.failure is not None
            assert "bug" in buggy.failure[1]
            await other.over()
            assert other.finish == "length"
            assert len(told) == 1

    run(scenario())


def test_a_killed_engine_fails_every_stream_within_a_second() -> None:
    async def scenario() -> None:
        async with fake_engine(behaviour=Behaviour(part_seconds=0.01)) as client:
            await client.ready()
            followers = [Follower() for _ in range(3)]
            for number, follower in enumerate(followers, 1):
                client.submit(submit_message(number, prompt(9), max_tokens=400), follower)
            await followers[0].until(lambda one: one.ids)
            killed = time.monotonic()
            os.kill(client.pid, signal.SIGKILL)
            await client.ended.wait()
            assert time.monotonic() - killed < 1
            assert client.failure is not None
            assert client.failure.reason == "EngineFailed"
            assert "SIGKILL" in client.failure.message
            for follower in followers:
                assert follower.failure == (client.failure.reason, client.failure.message)
            late = Follower()
            client.submit(submit_message(9, prompt(9)), late)
            assert late.failure is None, "a sink is never called from submit"
            await late.over()
            assert late.failure == followers[0].failure
            with pytest.raises(EngineEnded, match="SIGKILL"):
                await client.ready()

    run(scenario())


def test_an_engine_that_hangs_in_a_step_is_killed(tmp_path: Path) -> None:
    async def scenario() -> None:
        behaviour = Behaviour(fault="hang", fault_step=3)
        async with fake_engine(behaviour=behaviour, step_timeout=0.5) as client:
            await client.ready()
            follower = Follower()
            client.submit(submit_message(1, prompt(9)), follower)
            await follower.over()
            assert follower.failure is not None
            assert follower.failure[0] == "DeviceHung"
            assert "device hung" in follower.failure[1]
            assert "in step 3" in follower.failure[1]
            assert len(follower.ids) == 2
            await client.ended.wait()

    run(scenario())


def test_an_engine_that_is_slow_but_alive_is_left_alone() -> None:
    async def scenario() -> None:
        behaviour = Behaviour(part_seconds=0.4)
        async with fake_engine(behaviour=behaviour, step_timeout=1.0) as client:
            await client.ready()
            follower = Follower()
            client.submit(submit_message(1, prompt(9), max_tokens=6), follower)
            await follower.over()
            assert follower.finish == "length"

    run(scenario())


@pytest.mark.parametrize("busy", [True, False])
def test_a_stopped_engine_is_found_and_killed(busy: bool) -> None:
    async def scenario() -> None:
        behaviour = Behaviour(part_seconds=0.01)
        async with fake_engine(behaviour=behaviour, step_timeout=0.5) as client:
            await client.ready()
            if busy:
                follower = Follower()
                client.submit(submit_message(1, prompt(9), max_tokens=400), follower)
                await follower.until(lambda one: len(one.ids) > 2)
            os.kill(client.pid, signal.SIGSTOP)
            await client.ended.wait()
            assert client.failure is not None
            assert client.failure.reason == "DeviceHung"

    run(scenario())


@pytest.mark.parametrize(
    ("fault", "reason", "message"),
    [
        ("raise", "EngineFailed", "ZeroDivisionError: a bug in a step"),
        ("exit", "EngineFailed", "exited with code 7"),
        ("abort", "EngineFailed", "SIGABRT"),
    ],
)
def test_a_fault_in_a_step_ends_the_engine_and_says_why(
    fault: str, reason: str, message: str
) -> None:
    async def scenario() -> None:
        behaviour = Behaviour(fault=fault, fault_step=2)  # type: ignore[arg-type]
        async with fake_engine(behaviour=behaviour) as client:
            await client.ready()
            follower = Follower()
            client.submit(submit_message(1, prompt(9)), follower)
            await client.ended.wait()
            await follower.over()
            assert follower.failure is not None
            assert follower.failure[0] == reason
            assert message in follower.failure[1]
            assert len(follower.ids) == 1

    run(scenario())


@pytest.mark.parametrize(
    ("start", "reason", "message"),
    [
        ("raise", "EngineFailed", "ZeroDivisionError: a bug in the loader"),
        ("refuse", "ModelUnreadable", "model.gguf is cut short; fetch it again"),
        ("exit", "EngineFailed", "exited with code 3"),
    ],
)
def test_an_engine_that_cannot_start_says_why(start: str, reason: str, message: str) -> None:
    async def scenario() -> None:
        async with fake_engine(behaviour=Behaviour(start=start)) as client:  # type: ignore[arg-type]
            with pytest.raises(EngineEnded) as caught:
                await client.ready()
            assert caught.value.failed.reason == reason
            assert message in str(caught.value)

    run(scenario())


def test_a_start_that_stands_still_is_ended() -> None:
    async def scenario() -> None:
        behaviour = Behaviour(start="stall")
        async with fake_engine(behaviour=behaviour, start_timeout=2.0) as client:
            with pytest.raises(EngineEnded, match="while loading, at 0 of 100") as caught:
                await client.ready()
            assert caught.value.failed.reason == "NoProgress"

    run(scenario())


def test_closing_ends_the_engine_and_its_streams() -> None:
    async def scenario() -> None:
        async with fake_engine(behaviour=Behaviour(part_seconds=0.01)) as client:
            await client.ready()
            follower = Follower()
            client.submit(submit_message(1, prompt(9), max_tokens=400), follower)
            await follower.until(lambda one: one.ids)
            await client.close()
            assert follower.failure == ("Draining", "the server is shutting down")
            assert client.failure is None
            assert client.ended.is_set()
            with pytest.raises(ProcessLookupError):
                os.kill(client.pid, 0)
            await client.close()

    run(scenario())


def test_closing_while_it_loads_does_not_wait_for_the_load() -> None:
    async def scenario() -> None:
        async with fake_engine(behaviour=Behaviour(start="stall")) as client:
            await eventually(lambda: client.progress is not None)
            began = time.monotonic()
            await client.close()
            assert client.ended.is_set()
            assert time.monotonic() - began < 3

    run(scenario())


def test_the_engine_ignores_signals_that_are_its_parents() -> None:
    async def scenario() -> None:
        async with fake_engine() as client:
            await client.ready()
            for number in (signal.SIGINT, signal.SIGTERM):
                os.kill(client.pid, number)
            follower = Follower()
            client.submit(submit_message(1, prompt(9)), follower)
            await follower.over()
            assert follower.finish == "length"
            assert os.getsid(client.pid) != os.getsid(0)

    run(scenario())


def test_a_sink_that_raises_costs_its_own_sequence_only() -> None:
    class Broken(Follower):
        def tokens(self, entry: object, stamp: float) -> None:
            raise ZeroDivisionError("a bug in a sink")

    async def scenario() -> None:
        told: list[str] = []
        asyncio.get_running_loop().set_exception_handler(
            lambda loop, context: told.append(context["message"])
        )
        async with fake_engine(behaviour=Behaviour(part_seconds=0.001)) as client:
            await client.ready()
            good = Follower()
            client.submit(submit_message(1, prompt(9), max_tokens=400), Broken())
            client.submit(submit_message(2, prompt(9)), good)
            await good.over()
            assert good.finish == "length"
            stats = await idle(client)
            assert stats.blocks_used == 0
            assert stats.generated_tokens < 100
        assert told == ["the sink of sequence 1 raised"]

    run(scenario())


def test_nothing_is_left_in_the_file_system_once_the_engine_is_connected() -> None:
    async def scenario() -> None:
        async with fake_engine() as client:
            await client.ready()
            assert client._child is not None
            assert not client._child.folder.exists()

    run(scenario())
