"""Prompts are the same for the same seed, unlike each other, and as long as asked for."""

from __future__ import annotations

from itertools import islice
from pathlib import Path

import pytest
from flatwake_loadtest.prompts import PROFILES, Prompt, Words, endless, fixed, recorded


def some(name: str, seed: int = 1, user: int = 0, count: int = 50) -> list[Prompt]:
    return list(islice(endless(PROFILES[name], seed, user), count))


@pytest.mark.parametrize("name", PROFILES)
def test_the_same_seed_asks_the_same(name: str) -> None:
    assert some(name) == some(name)
    assert some(name) != some(name, seed=2)
    assert some(name) != some(name, user=1)


@pytest.mark.parametrize("name", PROFILES)
def test_no_prompt_is_asked_twice(name: str) -> None:
    asked = [prompt.messages for user in range(8) for prompt in some(name, user=user)]
    assert len(set(asked)) == len(asked)


@pytest.mark.parametrize("name", PROFILES)
def test_lengths_stay_in_the_profiles_range(name: str) -> None:
    profile, words = PROFILES[name], Words(overhead=10, per_word=1.25)
    for prompt in islice(endless(profile, 1, 0, words), 50):
        tokens = 10 + 1.25 * len(prompt.messages[-1][1].split())
        assert profile.prompt[0] - 2 <= tokens <= profile.prompt[1] + 2
        assert profile.answer[0] <= prompt.max_tokens <= profile.answer[1]
        assert profile.think[0] <= prompt.think <= profile.think[1]


def test_agents_share_their_prefix() -> None:
    systems = {
        dict(prompt.messages)["system"] for user in (0, 1) for prompt in some("agent", 1, user)
    }
    assert len(systems) == PROFILES["agent"].prefixes


def test_a_short_context_shortens_the_profile() -> None:
    for profile in PROFILES.values():
        cut = profile.within(1024)
        assert cut.prefix + cut.prompt[1] + cut.answer[1] <= 1024
        assert cut.prompt[0] <= cut.prompt[1]
        assert profile.within(None) == profile


def test_words_are_calibrated_from_two_counts() -> None:
    words = Words.calibrate((10, 27), (100, 142))
    assert words.per_word == pytest.approx(115 / 90)
    assert words.count(142) == 100
    assert len(fixed(142, 8, 1, words).messages[0][1].split()) == 100


def test_recorded_prompts_are_replayed(tmp_path: Path) -> None:
    file = tmp_path / "prompts.jsonl"
    file.write_text(
        '{"prompt": "hello", "max_tokens": 5}\n\n'
        '{"messages": [{"role": "user", "content": "hi"}], "temperature": 0.5}\n'
    )
    first, second = recorded(file)
    assert first.messages == (("user", "hello"),)
    assert first.body("m")["max_tokens"] == 5
    assert second.temperature == 0.5
    file.write_text('{"prompt": "a"}\n{"nothing": 1}\n')
    with pytest.raises(ValueError, match=r"prompts\.jsonl:2"):
        recorded(file)
    file.write_text("")
    with pytest.raises(ValueError, match="no prompts"):
        recorded(file)
