"""What the API process and the engine process say to each other: length-prefixed msgspec frames.

A frame is a little-endian uint32 with the number of bytes that follow, then one message. Token
ids only: text never enters the engine.
"""

from __future__ import annotations

import struct
from typing import Literal

import msgspec

FinishReason = Literal["stop", "length", "cancelled", "timeout", "error"]

MAX_FRAME_BYTES = 64 << 20
_LENGTH = struct.Struct("<I")


class SamplingParams(msgspec.Struct, array_like=True, frozen=True):
    """How to choose tokens; validated and complete. Defaults are greedy and off.

    `seed` is set for every sequence that isn't greedy (choice i of a request has seed + i).
    `logprobs` is the number of top entries wanted a token, -1 for none at all.
    `stop_ids` end the sequence (the id is reported, finish is stop), unless `ignore_eos` left them
    out; none of them is sampled before `min_tokens`.
    """

    temperature: float = 0.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    seed: int = 0
    logprobs: int = -1
    min_tokens: int = 0
    stop_ids: tuple[int, ...] = ()
    logit_bias: tuple[tuple[int, float], ...] = ()


# Down: API process to engine.


class Submit(msgspec.Struct, tag=0, array_like=True, frozen=True):
    """One sequence. `group` is shared by a prompt's choices; the first of them brings `ids`, the
    others follow it at once and bring none, so that a long prompt crosses once.

    `deadline` is CLOCK_MONOTONIC seconds; past it the sequence ends with timeout.
    """

    sequence: int
    group: int
    ids: tuple[int, ...]
    sampling: SamplingParams
    max_tokens: int
    deadline: float


class Cancel(msgspec.Struct, tag=1, array_like=True, frozen=True):
    """Forget a sequence; no more is reported of it. Unknown ones are ignored."""

    sequence: int


class Drain(msgspec.Struct, tag=2, array_like=True, frozen=True):
    """Finish what was submitted; nothing new comes."""


class Shutdown(msgspec.Struct, tag=3, array_like=True, frozen=True):
    """End now; the process exits 0."""


class Vocabulary(msgspec.Struct, tag=4, array_like=True, frozen=True):
    """The number of ids that the tokenizer knows, for an engine that was told it follows."""

    size: int


# Up: engine to API process.


class Loading(msgspec.Struct, tag=0, array_like=True, frozen=True):
    """Progress of the start: bytes of weights, then buckets warmed (`phase` says which)."""

    phase: Literal["loading", "warming"]
    done: int
    total: int


class Device(msgspec.Struct, array_like=True, frozen=True):
    name: str
    architecture: str
    memory_bytes: int


class Started(msgspec.Struct, tag=1, array_like=True, frozen=True):
    """The engine takes sequences. `context` is the effective one, in tokens, `model_context` what
    the model was made for.

    `vocabulary` is the number of token ids that the model knows, which a tokenizer may exceed.
    `bandwidth_bytes` is the device's read rate a second, measured at start; `model_bytes` the
    weights in their files, as `Loading` counts them.
    """

    context: int
    kv_tokens: int
    vocabulary: int
    backend: str
    device: Device
    bandwidth_bytes: float
    model_bytes: int
    model_context: int


class TokenLogprobs(msgspec.Struct, array_like=True, frozen=True):
    """Of one token: its own log probability, and the top ones, the largest first."""

    chosen: float
    top_ids: tuple[int, ...]
    top_logprobs: tuple[float, ...]


class SequenceTokens(msgspec.Struct, array_like=True, frozen=True):
    """What one sequence gained in a step. `finish` is set with its last entry.

    A sequence that ends without a token (timeout, error) has no ids.
    """

    sequence: int
    ids: tuple[int, ...]
    logprobs: tuple[TokenLogprobs, ...] = ()
    finish: FinishReason | None = None


class Tokens(msgspec.Struct, tag=2, array_like=True, frozen=True):
    """All of a step, in one frame. `stamp` is CLOCK_MONOTONIC seconds when ids were read."""

    step: int
    stamp: float
    entries: tuple[SequenceTokens, ...]
    started: tuple[int, ...] = ()
    """Sequences whose first prompt chunk ran in this step: they wait no longer."""


class StepHistogram(msgspec.Struct, array_like=True, frozen=True):
    """Counts by bucket (not cumulative), the last for what is above all bounds, and the sum."""

    counts: tuple[int, ...]
    sum: float


class Stats(msgspec.Struct, tag=3, array_like=True, frozen=True):
    """The engine's own values, each second while busy and on becoming idle. Totals since start."""

    prompt_tokens: int = 0
    generated_tokens: int = 0
    reported_tokens: int = 0
    discarded_tokens: int = 0
    steps: int = 0
    step_bytes: int = 0
    preemptions: int = 0
    graph_replays: int = 0
    graph_captures: int = 0
    sequences_running: int = 0
    sequences_waiting: int = 0
    blocks_used: int = 0
    blocks_free: int = 0
    blocks_cached: int = 0
    slots_used: int = 0
    slots_free: int = 0
    slots_cached: int = 0
    kv_touched_bytes: int = 0
    device_bytes: int = 0
    decode_seconds: StepHistogram | None = None
    prefill_seconds: StepHistogram | None = None
    decode_rows: StepHistogram | None = None
    prefill_rows: StepHistogram | None = None
    python_blocks: int = 0


SECONDS_BOUNDS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)
ROWS_BOUNDS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)


class Failed(msgspec.Struct, tag=4, array_like=True, frozen=True):
    """The engine ends. `reason` is one of the manifest's closed list."""

    reason: str
    message: str


Down = Submit | Cancel | Drain | Shutdown | Vocabulary
Up = Loading | Started | Tokens | Stats | Failed

_encoder = msgspec.msgpack.Encoder()
_down = msgspec.msgpack.Decoder(Down)
_up = msgspec.msgpack.Decoder(Up)


def encode(message: Down | Up) -> bytes:
    """A whole frame."""
    body = _encoder.encode(message)
    return _LENGTH.pack(len(body)) + body


def decode_down(body: bytes | memoryview) -> Down:
    """A frame's body on the engine's side."""
    return _down.decode(body)


def decode_up(body: bytes | memoryview) -> Up:
    """A frame's body on the API's side."""
    return _up.decode(body)


class Frames:
    """Cuts a byte stream into frame bodies."""

    def __init__(self) -> None:
        self._pending = bytearray()

    @property
    def partial(self) -> bool:
        """Whether a part of a frame is there."""
        return bool(self._pending)

    def feed(self, data: bytes | memoryview) -> list[bytes]:
        """Bodies that `data` completes.

        Raises:
            ValueError: a frame announces more than MAX_FRAME_BYTES; the stream is broken.
        """
        self._pending += data
        bodies, start = [], 0
        while len(self._pending) - start >= _LENGTH.size:
            (size,) = _LENGTH.unpack_from(self._pending, start)
            if size > MAX_FRAME_BYTES:
                raise ValueError(f"a frame of {size} bytes")
            end = start + _LENGTH.size + size
            if len(self._pending) < end:
                break
            bodies.append(bytes(self._pending[start + _LENGTH.size : end]))
            start = end
        del self._pending[:start]
        return bodies
