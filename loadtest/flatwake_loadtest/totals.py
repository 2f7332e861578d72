"""What is summed up about a wave's requests, in memory that doesn't grow with their number."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from .answer import Answer
from .distribution import Distribution


@dataclass
class Totals:
    """Sums over all answers of a wave; times in seconds.

    `answered` counts by the server's own words: whatever is refused with a 4xx, a full queue or a
    bad body, is a rejection. `spans` is the time between first and last tokens, `gaps` how many
    gaps that is by the server's count; `late_first` and `late_spans` are the parts of all first
    tokens' times and of `spans` that the client itself was late, where `timed` says that this is
    known of every answer, and `doubt` how much more of the first tokens' it may have been;
    `arrived` tokens by the second of CLOCK_MONOTONIC.
    """

    outcomes: Counter[str] = field(default_factory=Counter)
    answered: Counter[str] = field(default_factory=Counter)
    served: int = 0
    produced: int = 0
    streamed: int = 0
    usage_prompt: int = 0
    usage_completion: int = 0
    unseen: int = 0  # cancelled before anything came
    whole: bool = True  # each one was served or refused, so that tokens can be counted exactly
    spans: float = 0.0
    gaps: int = 0
    late_first: float = 0.0
    late_spans: float = 0.0
    doubt: float = 0.0
    timed: bool = True
    first: Distribution = field(default_factory=Distribution)
    gap: Distribution = field(default_factory=Distribution)
    delay: Distribution = field(default_factory=Distribution)
    request: Distribution = field(default_factory=Distribution)
    arrived: dict[int, float] = field(default_factory=dict)

    @property
    def requests(self) -> int:
        return self.outcomes.total()

    def add(self, answer: Answer) -> None:
        refused = 400 <= answer.status < 500
        self.outcomes[answer.outcome] += 1
        self.answered["rejected" if refused else answer.outcome] += 1
        self.whole = self.whole and (answer.complete or refused)
        self.unseen += answer.outcome == "cancelled" and not answer.stamps
        self.produced += answer.produced
        self.streamed += answer.tokens
        self.usage_prompt += answer.usage_prompt or 0
        self.usage_completion += answer.usage_completion or 0
        share = answer.produced / len(answer.stamps) if answer.stamps else 0
        for stamp in answer.stamps:
            second = int(answer.sent + stamp)
            self.arrived[second] = self.arrived.get(second, 0.0) + max(share, 1.0)
        if answer.complete:
            self._served(answer)

    def _served(self, answer: Answer) -> None:
        self.served += 1
        self.request.add(answer.seconds)
        if answer.first is None:
            return
        self.first.add(answer.first)
        self.spans += answer.stamps[-1] - answer.first
        self.gaps += answer.produced - 1
        if answer.late_first is None or answer.late_last is None:
            self.timed = False
        else:
            self.late_first += answer.late_first
            self.late_spans += answer.late_last - answer.late_first
            self.doubt += answer.doubt_first
        for gap in answer.gaps:
            self.gap.add(gap)
        for delay in answer.delays:
            self.delay.add(delay)
