"""What the scheduler decided for a step, and what the runner found."""

from __future__ import annotations

from dataclasses import dataclass, field

from flatwake_service.engine.messages import TokenLogprobs
from flatwake_service.engine.sequence import Sequence


@dataclass(frozen=True)
class DecodeEntry:
    """`count` consecutive rows of a sequence from position `start`.

    More than one row only replays. `samples` says whether the last row chooses the next token;
    a replay's rows before its last don't.
    """

    sequence: Sequence
    start: int
    count: int
    samples: bool


@dataclass(frozen=True)
class Chunk:
    """`count` prompt positions of a sequence from `start`, a multiple of 64.

    `samples` says whether the chunk ends the prompt and so chooses the first token (not when
    generated tokens are to be replayed).
    """

    sequence: Sequence
    start: int
    count: int
    samples: bool


@dataclass(frozen=True)
class Batch:
    """All decode rows of a step, then its chunks, which run one after another.

    `taken` are the sequences that got their slot in this step (new or resumed).
    """

    step: int
    decode: tuple[DecodeEntry, ...]
    chunks: tuple[Chunk, ...]
    taken: tuple[Sequence, ...] = ()

    @property
    def empty(self) -> bool:
        return not self.decode and not self.chunks


@dataclass(frozen=True)
class Sampled:
    """The token that a sequence's last row chose."""

    sequence: Sequence
    id: int
    logprobs: TokenLogprobs | None = None


@dataclass(frozen=True)
class Result:
    """One part of a step: its decode rows, or one chunk. Read as soon as its own event fires.

    `bytes` is what the part had to move: weights, KV and state.
    """

    entries: tuple[DecodeEntry | Chunk, ...]
    sampled: tuple[Sampled, ...] = field(default=())
    seconds: float = 0.0
    bytes: int = 0
