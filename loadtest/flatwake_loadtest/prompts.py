"""What users ask: named profiles, the same for the same seed, never the same prompt twice.

Lengths are stated in tokens and met through a calibration (`Words`), because the suite has no
tokenizer: it knows how many tokens the server counted for a prompt of so many words.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from .answer import Json

# Common short English words: one token each in practically every vocabulary.
_COMMON = (
    "time year people way day man thing woman life child world school state family student "
    "group country problem hand part place case week company system program question work "
    "government number night point home water room mother area money story fact month lot right "
    "study book eye job word business issue side kind head house service friend father power "
    "hour game line end member law car city community name president team minute idea body "
    "information back parent face others level office door health person art war history party "
    "result change morning reason research girl guy moment air teacher force education "
)
_WORDS = tuple(_COMMON.split())


@dataclass(frozen=True)
class Profile:
    """How long prompts and answers are, in tokens; how long a user thinks between, in seconds."""

    name: str
    prompt: tuple[int, int]
    answer: tuple[int, int]
    think: tuple[float, float] = (0.0, 0.0)
    prefix: int = 0  # tokens of a system prompt that requests share
    prefixes: int = 1
    temperature: float = 0.7

    def within(self, context: int | None) -> Profile:
        """Shortened where the server's context wouldn't hold it."""
        if context is None:
            return self
        room = context // 2
        prefix = min(self.prefix, room // 2)
        prompt = (min(self.prompt[0], room // 2), min(self.prompt[1], room - prefix))
        answer = (min(self.answer[0], room // 2), min(self.answer[1], context - room - 64))
        return replace(self, prefix=prefix, prompt=prompt, answer=answer)


PROFILES = {
    profile.name: profile
    for profile in (
        Profile("chat", (32, 256), (48, 160), think=(0.5, 3.0)),
        Profile("summarise", (512, 1536), (64, 128), think=(1.0, 5.0)),
        Profile("agent", (32, 128), (32, 96), think=(0.0, 0.5), prefix=512, prefixes=4),
        Profile("code", (128, 512), (128, 384), think=(2.0, 8.0), temperature=0.2),
        Profile("endurance", (16, 48), (16, 32)),
        # Little to read and much to say: what decoding alone is measured with.
        Profile("stream", (24, 40), (192, 256)),
        Profile("brief", (24, 40), (48, 64)),
    )
}


@dataclass(frozen=True)
class Words:
    """tokens = overhead + per_word × words, for prompts made here and this server's template."""

    overhead: float = 12.0
    per_word: float = 1.0

    @classmethod
    def calibrate(cls, few: tuple[int, int], many: tuple[int, int]) -> Words:
        """From two prompts' (words, tokens)."""
        per_word = (many[1] - few[1]) / (many[0] - few[0])
        return cls(overhead=few[1] - per_word * few[0], per_word=max(per_word, 0.1))

    def count(self, tokens: int) -> int:
        """How many words make about this many tokens; at least four, so that prompts differ."""
        return max(4, round((tokens - self.overhead) / self.per_word))


@dataclass(frozen=True)
class Prompt:
    """One request's content: messages and how much may be answered."""

    messages: tuple[tuple[str, str], ...]
    max_tokens: int
    temperature: float
    seed: int
    think: float = 0.0
    extra: tuple[tuple[str, object], ...] = ()

    def body(self, model: str | None) -> Json:
        body: Json = {
            "messages": [{"role": role, "content": text} for role, text in self.messages],
            "max_tokens": self.max_tokens,
            "temperature": self.temperature,
            "seed": self.seed,
            "stream": True,
            "stream_options": {"include_usage": True},
            **dict(self.extra),
        }
        if model:
            body["model"] = model
        return body


def text(words: int, rng: random.Random) -> str:
    """Random words; the first draws make it unique for all practical purposes."""
    return " ".join(rng.choice(_WORDS) for _ in range(words))


def endless(profile: Profile, seed: int, user: int, words: Words | None = None) -> Iterator[Prompt]:
    """A user's prompts: the same for the same seed and user, no two alike."""
    rng = random.Random(f"{profile.name} {seed} {user}")
    words = words or Words()
    shared = [
        text(words.count(profile.prefix), random.Random(f"prefix {seed} {index}"))
        for index in range(profile.prefixes)
    ]
    while True:
        messages: list[tuple[str, str]] = []
        if profile.prefix:
            messages.append(("system", rng.choice(shared)))
        messages.append(("user", text(words.count(rng.randint(*profile.prompt)), rng)))
        yield Prompt(
            messages=tuple(messages),
            max_tokens=rng.randint(*profile.answer),
            temperature=profile.temperature,
            seed=rng.randrange(2**31),
            think=rng.uniform(*profile.think),
        )


def fixed(tokens: int, answer: int, seed: int, words: Words | None = None) -> Prompt:
    """One greedy prompt of about this many tokens."""
    words = words or Words()
    rng = random.Random(f"fixed {tokens} {seed}")
    return Prompt((("user", text(words.count(tokens), rng)),), answer, 0.0, seed)


def recorded(path: Path) -> list[Prompt]:
    """Prompts from a file: one JSON a line, {"prompt": str} or {"messages": [...]}, max_tokens.

    Raises ValueError that names the line.
    """
    prompts = []
    for number, line in enumerate(path.read_text().splitlines(), 1):
        if line.strip():
            try:
                prompts.append(_recorded(json.loads(line), number))
            except (ValueError, KeyError, TypeError) as error:
                raise ValueError(f"{path}:{number}: {error!r}; each line is an object") from error
    if not prompts:
        raise ValueError(f"{path} holds no prompts; each line is a JSON object with a prompt")
    return prompts


def _recorded(entry: Json, number: int) -> Prompt:
    if "messages" in entry:
        messages = tuple((str(each["role"]), str(each["content"])) for each in entry["messages"])
    else:
        messages = (("user", str(entry["prompt"])),)
    return Prompt(
        messages,
        int(entry.get("max_tokens", 128)),
        float(entry.get("temperature", 0.0)),
        int(entry.get("seed", number)),
    )
