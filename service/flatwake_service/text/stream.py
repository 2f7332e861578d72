"""A sequence's text as it is streamed: whole characters, up to a stop string."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from flatwake_service.text.detokenizer import Detokenizer
from flatwake_service.text.stops import StopStrings
from flatwake_service.text.tokenizer import Tokenizer


class TextStream:
    """Tokens in, text that may be sent out.

    `stop` is the stop string that ended the text, or None. Tokens after it are of no interest.
    """

    __slots__ = ("_detokenizer", "_stops")

    def __init__(
        self, tokenizer: Tokenizer, *, stop: Sequence[str] = (), skip_special: bool = True
    ) -> None:
        self._detokenizer = Detokenizer(tokenizer, skip_special=skip_special)
        self._stops = StopStrings(stop)

    @property
    def stop(self) -> str | None:
        return self._stops.found

    def push(self, ids: Iterable[int]) -> str:
        """The text that can be sent now."""
        return self._stops.push(self._detokenizer.push(ids))

    def finish(self) -> str:
        """What was held back, when no token follows."""
        return self._stops.push(self._detokenizer.flush()) + self._stops.flush()
