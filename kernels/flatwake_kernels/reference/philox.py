"""Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011)."""

from __future__ import annotations

import numpy as np

_ROUNDS = 10
_MULTIPLIERS = np.uint64(0xD2511F53), np.uint64(0xCD9E8D57)
_KEY_STEPS = np.uint64(0x9E3779B9), np.uint64(0xBB67AE85)
_LOW, _WORD = np.uint64(0xFFFFFFFF), np.uint64(32)


def philox(seed: int, counters: np.ndarray) -> np.ndarray:
    """uint32 words `[n, 4]` of 64-bit key `seed` (its low word first) and counters `[n, 4]`."""
    key = [np.uint64(seed & 0xFFFFFFFF), np.uint64(seed >> 32 & 0xFFFFFFFF)]
    words = [counters[:, i].astype(np.uint64) for i in range(4)]
    for _ in range(_ROUNDS):
        first, second = words[0] * _MULTIPLIERS[0], words[2] * _MULTIPLIERS[1]
        words = [
            second >> _WORD ^ words[1] ^ key[0],
            second & _LOW,
            first >> _WORD ^ words[3] ^ key[1],
            first & _LOW,
        ]
        key = [k + step & _LOW for k, step in zip(key, _KEY_STEPS, strict=True)]
    return np.stack(words, axis=1).astype(np.uint32)


def gumbel(seed: int, position: int, count: int) -> np.ndarray:
    """float32 noise of ids 0 to count - 1, by seed and position alone."""
    groups = -(-count // 4)
    counters = np.zeros((groups, 4), np.uint32)
    counters[:, 0] = np.arange(groups, dtype=np.uint32)
    counters[:, 1] = position
    words = philox(seed, counters).ravel()[:count]
    uniform = ((words >> np.uint32(9)) + 0.5) * 2.0**-23
    noise: np.ndarray = -np.log(-np.log(uniform))
    return noise.astype(np.float32)
