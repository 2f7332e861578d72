"""API keys: files in a folder, read again every few seconds, so that a rotation needs no restart.

A Kubernetes Secret mounts as such a folder. Each file holds a key, or several, one a line; names
that begin with a dot are Kubernetes' own and are skipped.
"""

from __future__ import annotations

import asyncio
import hmac
from collections.abc import Callable, Iterator
from hashlib import sha256
from pathlib import Path

REFRESH = 10.0
MAX_FILE_BYTES = 1 << 20


class Keys:
    """`folder` None: the API is open. A folder without a usable key lets nobody in."""

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder
        self._digests: tuple[bytes, ...] = ()
        self.read()

    @property
    def required(self) -> bool:
        return self._folder is not None

    @property
    def missing(self) -> bool:
        return self.required and not self._digests

    def read(self) -> None:
        """Reads the folder; what can't be read is no key."""
        if self._folder is not None:
            keys = set(_keys(self._folder))
            self._digests = tuple(sha256(key).digest() for key in sorted(keys))

    def admits(self, authorization: bytes | None) -> bool:
        """Whether an Authorization header holds one of the keys. Its time doesn't depend on how
        much of a key is right: digests are compared, all of them, each in constant time.
        """
        if not self.required:
            return True
        scheme, _, key = (authorization or b"").partition(b" ")
        digest = sha256(key.strip()).digest()
        matches = [hmac.compare_digest(digest, known) for known in self._digests]
        return any(matches) and scheme.lower() == b"bearer"

    async def refresh(self, changed: Callable[[], None]) -> None:
        """Reads the folder for ever, every REFRESH seconds, off the event loop."""
        while self.required:
            await asyncio.sleep(REFRESH)
            missing = self.missing
            await asyncio.to_thread(self.read)
            if missing != self.missing:
                changed()


def _keys(folder: Path) -> Iterator[bytes]:
    try:
        files = sorted(folder.iterdir())
    except OSError:
        return
    for file in files:
        if file.name.startswith("."):
            continue
        try:
            with file.open("rb") as opened:
                lines = opened.read(MAX_FILE_BYTES).splitlines()
        except OSError:
            continue
        for line in lines:
            key = line.strip()
            if key and all(0x21 <= byte <= 0x7E for byte in key):
                yield key
