"""The file that the tests of fetching fetch."""

from __future__ import annotations

import hashlib

import numpy as np


def sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


DATA = np.random.default_rng(2).bytes(400_000)
DIGEST = f"sha256:{sha(DATA)}"
