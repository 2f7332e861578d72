"""Codewords: what no model says by chance."""

from __future__ import annotations

import random

_LETTERS = "BCDFGHJKLMNPQRSTVWXZ"


def codeword(seed: int, index: int) -> str:
    """Five consonants and a number, the same for the same seed and index."""
    rng = random.Random(f"codeword {seed} {index}")
    return "".join(rng.choice(_LETTERS) for _ in range(5)) + f"-{rng.randrange(100, 1000)}"
