"""Streamed text: whole characters, and nothing of a stop string."""

from __future__ import annotations

import itertools

import pytest
from flatwake_service.text import Detokenizer, StopStrings, Tokenizer
from flatwake_service.text.gguf_vocabulary import read_gguf_vocabulary
from gguf_tokenizers import gguf_metadata
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_models import train_byte_level

TOKENIZER = Tokenizer(read_gguf_vocabulary(gguf_metadata(train_byte_level("smollm"), "smollm")))


@given(ids=st.lists(st.integers(0, TOKENIZER.size + 5), max_size=40), skip=st.booleans())
@settings(max_examples=300, deadline=None)
def test_a_stream_adds_up_to_the_text_of_the_whole(ids: list[int], skip: bool) -> None:
    detokenizer = Detokenizer(TOKENIZER, skip_special=skip)
    text = "".join([detokenizer.push([i]) for i in ids]) + detokenizer.flush()
    assert text == TOKENIZER.decode(ids, skip_special=skip)


@given(text=st.text(max_size=30))
@settings(max_examples=300, deadline=None)
def test_no_replacement_character_for_what_is_merely_split(text: str) -> None:
    detokenizer = Detokenizer(TOKENIZER, skip_special=False)
    pieces = [detokenizer.push([i]) for i in TOKENIZER.encode(text, add_special=False)]
    assert "".join(pieces) == text
    assert detokenizer.flush() == ""
    if "\ufffd" not in text:
        assert not any("\ufffd" in piece for piece in pieces)


def test_an_incomplete_character_is_flushed_as_a_replacement() -> None:
    detokenizer = Detokenizer(TOKENIZER)
    first, *_ = TOKENIZER.encode("🦩", add_special=False)  # four bytes, no token of its own
    assert detokenizer.push([first]) == ""
    assert detokenizer.flush() == "\ufffd"


def naive(text: str, stops: list[str]) -> tuple[str, str | None]:
    """Read on until a stop string is complete; of several, the longest."""
    for end in range(len(text) + 1):
        for stop in sorted(stops, key=len, reverse=True):
            if text[:end].endswith(stop):
                return text[: end - len(stop)], stop
    return text, None


LETTERS = st.text("ab", max_size=24)
STOPS = st.lists(st.text("ab", min_size=1, max_size=6), max_size=4)


@given(text=LETTERS, stops=STOPS, cuts=st.lists(st.integers(0, 24), max_size=6))
@settings(max_examples=400, deadline=None)
def test_streaming_stops_where_a_search_of_the_whole_text_would(
    text: str, stops: list[str], cuts: list[int]
) -> None:
    bounds = sorted({0, len(text), *(c for c in cuts if c < len(text))})
    finder = StopStrings(stops)
    sent = ""
    for begin, end in itertools.pairwise(bounds):
        sent += finder.push(text[begin:end])
        if finder.found is None:
            held = text[len(sent) : end]
            prefixes = {s[:n] for s in stops for n in range(len(s))} | {""}
            longest = max((p for p in prefixes if text[:end].endswith(p)), key=len)
            assert held == longest, "exactly the longest possible beginning is held back"
    sent += finder.flush() if finder.found is None else ""
    assert (sent, finder.found) == naive(text, stops)


def test_nothing_comes_after_a_stop() -> None:
    finder = StopStrings(["\n\n"])
    assert finder.push("one\n\ntwo") == "one"
    assert (finder.push("three"), finder.flush(), finder.found) == ("", "", "\n\n")


@pytest.mark.parametrize("stop", ["été", " 🎉", "user"])
def test_a_stop_string_is_found_across_tokens_that_split_its_characters(stop: str) -> None:
    text = "of the user en été now 🎉 end"
    pieces, stops = Detokenizer(TOKENIZER), StopStrings([stop])
    sent = ""
    for i in TOKENIZER.encode(text, add_special=False):
        sent += stops.push(pieces.push([i]))
        if stops.found:
            break
    assert (sent, stops.found) == (text[: text.index(stop)], stop)


def test_a_held_prefix_comes_out_at_the_end() -> None:
    pieces, stops = Detokenizer(TOKENIZER), StopStrings(["END of it"])
    ids = TOKENIZER.encode("the END", add_special=False)
    sent = "".join([stops.push(pieces.push([i])) for i in ids])
    assert sent + stops.push(pieces.flush()) + stops.flush() == "the END"
    assert stops.found is None
