"""A file that is being downloaded.

It is two files: the bytes that have arrived, always a beginning of the right file, and a note of
which version of it they belong to (the server's validator). A process that is killed at any moment
leaves them so that the next one goes on; bytes of another version are never joined.
"""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import BinaryIO, Final

_BLOCK: Final = 1 << 20


class Partial:
    """The bytes that have arrived, their hash, and the version that they belong to."""

    def __init__(self, target: Path, note: Path, identity: str) -> None:
        self.target, self.note = target, note
        self._identity = hashlib.sha256(identity.encode()).hexdigest()
        self.size = 0
        self.hash = hashlib.sha256()
        self.version: dict[str, object] | None = None
        self.joined = False
        try:
            known = json.loads(note.read_text())
        except (OSError, ValueError):
            return  # nothing that can be trusted: begin anew
        # The same name may stand for another file since: a branch has moved.
        if not isinstance(known, dict) or known.get("of") != self._identity:
            return
        try:
            with target.open("rb") as file:
                while block := file.read(_BLOCK):
                    self.hash.update(block)
                    self.size += len(block)
        except FileNotFoundError:
            return
        self.version = known

    def restart(self, version: dict[str, object]) -> BinaryIO:
        """Empty it for bytes of this version. A kill in between leaves it empty or unnoted."""
        self.discard()
        self.target.write_bytes(b"")
        temporary = self.note.with_suffix(".tmp")
        temporary.write_text(json.dumps(version | {"of": self._identity}))
        temporary.replace(self.note)
        self.version = version
        return self.target.open("ab")

    def resume(self) -> BinaryIO:
        os.truncate(self.target, self.size)
        self.joined = True
        return self.target.open("ab")

    def discard(self) -> None:
        """Forget what has arrived."""
        self.note.unlink(missing_ok=True)
        self.target.unlink(missing_ok=True)
        self.size, self.hash, self.version, self.joined = 0, hashlib.sha256(), None, False

    def validator(self, trusted: bool) -> str | None:
        """What If-Range needs to be sure that both parts are of one file.

        None: begin anew. Empty: the digest will tell, so go on without one.
        """
        if self.version is None or not self.size:
            return None
        etag = self.version.get("etag")
        if isinstance(etag, str) and etag and not etag.startswith("W/"):
            return etag
        modified = self.version.get("modified")
        return modified if isinstance(modified, str) and modified else "" if trusted else None
