import random
import socket
from concurrent.futures import ThreadPoolExecutor

import pytest
from flatwake_service.engine import messages
from flatwake_service.engine.channel import Channel
from flatwake_service.engine.messages import (
    MAX_FRAME_BYTES,
    Cancel,
    Device,
    Down,
    Drain,
    Failed,
    Frames,
    Loading,
    SamplingParams,
    SequenceTokens,
    Shutdown,
    Started,
    Stats,
    StepHistogram,
    Submit,
    TokenLogprobs,
    Tokens,
    Up,
)


def random_down(rng: random.Random) -> Down:
    ids = tuple(rng.randrange(200_000) for _ in range(rng.choice([1, 3, 300])))
    sampling = SamplingParams(
        temperature=rng.random(), stop_ids=(1, 2), logit_bias=((5, -1.5),), seed=rng.getrandbits(63)
    )
    submit = Submit(rng.getrandbits(53), 7, ids, sampling, 10, rng.random() * 1e6)
    return rng.choice([submit, Cancel(rng.getrandbits(53)), Drain(), Shutdown()])


def random_up(rng: random.Random) -> Up:
    logprobs = TokenLogprobs(-rng.random(), (3, 4), (-0.1, -2.5))
    entries = tuple(
        SequenceTokens(number, (rng.randrange(200_000),), (logprobs,), rng.choice([None, "stop"]))
        for number in range(rng.randrange(65))
    )
    return rng.choice(
        [
            Loading("warming", 3, 9),
            Started(9, 4096, 9, "cpu", Device("a device", "gfx1100", 1 << 34), 1.5e11, 1 << 30, 99),
            Tokens(rng.getrandbits(40), rng.random() * 1e6, entries, (4, 5)),
            Stats(prompt_tokens=3, decode_seconds=StepHistogram((1, 2, 3), 0.5)),
            Failed("EngineFailed", "a Umlaut: ü"),
        ]
    )


def test_a_thousand_messages_survive_any_cutting_of_their_bytes() -> None:
    seed = 20
    print("seed", seed)
    rng = random.Random(seed)
    for make, decode in ((random_down, messages.decode_down), (random_up, messages.decode_up)):
        sent = [make(rng) for _ in range(500)]
        stream = b"".join(messages.encode(message) for message in sent)
        frames, received, start = Frames(), [], 0
        while start < len(stream):
            size = rng.choice([1, 2, 3, 5, 100, 5000, 100_000])
            received += map(decode, frames.feed(stream[start : start + size]))
            start += size
        assert received == sent


def test_a_thousand_random_streams_give_messages_or_one_clear_error() -> None:
    seed = 21
    print("seed", seed)
    rng = random.Random(seed)
    refused = 0
    for _ in range(1000):
        whole = bytearray(messages.encode(random_down(rng)))
        for _ in range(rng.randrange(4)):
            whole[rng.randrange(len(whole))] = rng.randrange(256)
        frames = Frames()
        try:  # msgspec's errors are ValueErrors too
            decoded = [messages.decode_down(body) for body in frames.feed(bytes(whole))]
        except ValueError:
            refused += 1
        else:
            assert all(isinstance(one, Submit | Cancel | Drain | Shutdown) for one in decoded)
    assert 100 < refused < 1000


def test_a_frame_that_announces_too_much_is_refused_before_it_is_awaited() -> None:
    frames = Frames()
    with pytest.raises(ValueError, match=f"a frame of {MAX_FRAME_BYTES + 1} bytes"):
        frames.feed((MAX_FRAME_BYTES + 1).to_bytes(4, "little"))


def test_a_cancellation_does_not_wait_behind_long_prompts() -> None:
    """Five megabytes, of which a socket holds a fraction: the engine takes them between two steps,
    not a fraction a step.
    """
    ids = tuple(range(50_000, 100_000))
    sent = [Submit(number, number, ids, SamplingParams(), 1, 1e18) for number in range(32)]
    stream = b"".join(messages.encode(message) for message in [*sent, Cancel(3)])
    api, engine = socket.socketpair()
    with api, ThreadPoolExecutor(1) as pool:
        channel = Channel(engine)
        sending = pool.submit(api.sendall, stream)
        received, turns = [], 0
        while len(received) < 33:
            received += channel.receive(1.0)
            turns += 1
        sending.result()
        channel.close()
    assert received == [*sent, Cancel(3)]
    assert turns <= 5, "the buffer alone would make it 25"
