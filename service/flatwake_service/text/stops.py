"""Stop strings in streamed text."""

from __future__ import annotations

from collections.abc import Sequence


class StopStrings:
    """Finds the stop string that is complete first, and holds back only what may become one.

    What is held back is always the longest end of the text that is a proper prefix of a stop
    string. Of two that complete with the same character, the longer wins. Work per character is
    constant (Knuth, Morris and Pratt's automaton, one a string).
    """

    __slots__ = ("_borders", "_firsts", "_held", "_states", "_stops", "found")

    def __init__(self, stops: Sequence[str]) -> None:
        assert all(stops), "an empty stop string"
        self._stops = sorted(stops, key=len, reverse=True)
        self._borders = [_borders(stop) for stop in self._stops]
        self._firsts = {stop[0] for stop in stops}
        self._states = [0] * len(self._stops)
        self._held = ""
        self.found: str | None = None
        """The stop string that ended the text."""

    def push(self, text: str) -> str:
        """The text that can be sent. After `found`, nothing more comes."""
        if self.found is not None:
            return ""
        if not self._held and not any(first in text for first in self._firsts):
            return text  # nearly every token, so without the automata's Python
        window = self._held + text
        for end in range(len(self._held), len(window)):
            stop = self._advance(window[end])
            if stop is not None:
                self.found, self._held = stop, ""
                return window[: end + 1 - len(stop)]
        keep = len(window) - max(self._states)
        self._held = window[keep:]
        return window[:keep]

    def flush(self) -> str:
        """What is still held back, when no text follows."""
        held, self._held = self._held, ""
        self._states = [0] * len(self._stops)
        return held

    def _advance(self, character: str) -> str | None:
        """Move every automaton by a character; the stop string that it completes."""
        complete = None
        for i, stop in enumerate(self._stops):
            state, borders = self._states[i], self._borders[i]
            while state and stop[state] != character:
                state = borders[state - 1]
            if stop[state] == character:
                state += 1
            if state == len(stop):
                complete = complete or stop
                state = borders[-1]
            self._states[i] = state
        return complete


def _borders(text: str) -> list[int]:
    """For each prefix, the length of its longest proper prefix that is also its suffix."""
    borders = [0] * len(text)
    length = 0
    for i in range(1, len(text)):
        while length and text[i] != text[length]:
            length = borders[length - 1]
        if text[i] == text[length]:
            length += 1
        borders[i] = length
    return borders
