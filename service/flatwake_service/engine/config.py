"""The engine process's configuration: one JSON document on its command line."""

from __future__ import annotations

from typing import Literal

import msgspec

HOST_BACKENDS = ("reference", "cpu", "emulation")
"""Those whose memory is the machine's."""


class EngineConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What `flatwake serve` decides and the engine child obeys. Seconds and bytes.

    `socket` and `heartbeat` are the client's to fill in. `vocabulary` is the number of ids that the
    tokenizer knows: a head's padding beyond them is never sampled. With `vocabulary_follows` a
    message brings it, so that the weights load while the tokenizer is read.

    `look_ahead` launches a decode step before the ids of the one before it are read; `auto` does
    so where a launch doesn't wait for the device. It is off for who chooses ids or reads logits.

    `hold` names a test's pipe: the engine waits on it before it reads step `hold_step`'s ids.
    """

    model: str
    backend: Literal["reference", "cpu", "hip", "emulation", "cuda"]
    socket: str = ""
    activations: Literal["auto", "float", "int8"] = "auto"
    device: int = 0
    threads: int = 0
    max_sequences: int = 8
    context_length: int | None = None
    vocabulary: int | None = None
    vocabulary_follows: bool = False
    prefill_tokens: int = 512
    kv_memory_fraction: float | None = None
    kv_dtype: Literal["auto", "float32", "float16", "bfloat16"] = "auto"
    graphs: Literal["auto", "on", "off"] = "auto"
    look_ahead: Literal["auto", "on", "off"] = "off"
    heartbeat: str | None = None
    hold: str | None = None
    hold_step: int = 2
    check_invariants: bool = False
    trace: bool = False
    log_format: Literal["text", "json"] = "text"


def decode(text: str) -> EngineConfig:
    return msgspec.json.decode(text, type=EngineConfig)


def encode(config: EngineConfig) -> str:
    return msgspec.json.encode(config).decode()
