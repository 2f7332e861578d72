"""A sequence: one choice of one request, from its submission to its last token."""

from __future__ import annotations

from dataclasses import dataclass, field

from flatwake_service.engine.messages import SamplingParams

CHUNK_TOKENS = 64
"""Chunks start at multiples of this, which makes a prompt's bits independent of its cuts."""


@dataclass(eq=False)
class Sequence:
    """What the scheduler knows of a sequence. Positions count from 0, in tokens.

    `ids` is the prompt, then what was generated. `computed` positions have their KV and state on
    the device: while it is below `prompt_length` the prompt is being prefilled; between there and
    `len(ids) - 1` generated tokens are being replayed after a preemption.

    `blocks[i]` holds positions [16 i, 16 i + 16). `slot` holds recurrent state and, as the
    sampling slot, penalties and biases; 0 while it has none.
    """

    number: int
    group: int
    prompt_length: int
    ids: list[int]
    sampling: SamplingParams
    max_tokens: int
    deadline: float
    arrival: int
    computed: int = 0
    blocks: list[int] = field(default_factory=list)
    slot: int = 0
    reported: int = 0
    started: bool = False

    @property
    def generated(self) -> int:
        return len(self.ids) - self.prompt_length

    @property
    def prefilling(self) -> bool:
        return self.computed < self.prompt_length
