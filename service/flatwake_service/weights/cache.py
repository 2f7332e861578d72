"""The model cache: a folder a source, which is there whole or not at all.

CACHE/KEY/                 what the source brings, with `.flatwake.json`, its record
CACHE/.KEY.partial/files/  the same while it is being fetched, renamed when it is whole
CACHE/.KEY.partial/notes/  which versions the partial files belong to
CACHE/.KEY.lock            held by the process that fetches
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from flatwake_service.errors import NoProgress
from flatwake_service.manifest.sources import Source, source_label
from flatwake_service.weights.volume import disk_error

RECORD: Final = ".flatwake.json"


def default_cache() -> Path:
    """${FLATWAKE_CACHE}/models, else the user's cache folder's flatwake/models."""
    own = os.environ.get("FLATWAKE_CACHE")
    base = os.environ.get("XDG_CACHE_HOME")
    if own:
        return Path(own) / "models"
    return (Path(base) if base else Path.home() / ".cache") / "flatwake" / "models"


@dataclass(frozen=True, slots=True)
class Record:
    """What was fetched. `digest` is the file's, or the folder's over its sorted lines."""

    source: str
    revision: str
    digest: str
    files: dict[str, tuple[int, str]]
    """(bytes, SHA-256 in hex) by path."""

    @property
    def bytes(self) -> int:
        return sum(size for size, _ in self.files.values())


def digest_of(files: dict[str, tuple[int, str]], is_file: bool) -> str:
    """The digest of one file, or of a folder: SHA-256 over its sorted `sha256  path` lines."""
    if is_file:
        ((_, sha256),) = files.values()
        return f"sha256:{sha256}"
    lines = sorted(f"{sha256}  {path}\n" for path, (_, sha256) in files.items())
    return "sha256:" + hashlib.sha256("".join(lines).encode()).hexdigest()


class Place:
    """Where one source lies in the cache."""

    def __init__(self, cache: Path, source: Source) -> None:
        self.source = source
        self.folder = cache / source.key
        self.path = Path(source.location(str(cache)))
        self.partial = cache / f".{source.key}.partial"
        self.files = self.partial / "files"
        self.notes = self.partial / "notes"
        self._lock = cache / f".{source.key}.lock"

    def record(self) -> Record | None:
        """What the cache holds whole, or None."""
        try:
            value = json.loads((self.folder / RECORD).read_text())
            files = {name: (int(size), str(sha)) for name, (size, sha) in value["files"].items()}
            if all(
                (self.folder / name).stat().st_size == size for name, (size, _) in files.items()
            ):
                return Record(
                    source_label(self.source.text), value["revision"], value["digest"], files
                )
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return None  # absent or damaged: to be fetched
        return None

    def prepare(self) -> None:
        """Make the folders. Raises OSError, as `publish` does."""
        for folder in (self.files, self.notes):
            folder.mkdir(parents=True, exist_ok=True)

    def publish(self, record: Record) -> None:
        """Turn the partial folder into the whole one, at once."""
        value = {
            "source": record.source,
            "revision": record.revision,
            "digest": record.digest,
            "files": {name: list(entry) for name, entry in sorted(record.files.items())},
        }
        old = self.partial / "old"
        self._keep_only(record)
        (self.files / RECORD).write_text(json.dumps(value, indent=2) + "\n")
        for path in (*(self.files / name for name in (*record.files, RECORD)), self.files):
            _sync(path)
        if self.folder.exists():
            shutil.rmtree(old, ignore_errors=True)
            self.folder.rename(old)
        self.files.rename(self.folder)
        _sync(self.folder.parent)
        shutil.rmtree(self.partial)

    def _keep_only(self, record: Record) -> None:
        """Drop what an earlier revision of the source has left."""
        for path in sorted(self.files.rglob("*"), reverse=True):
            if path.is_file() and str(path.relative_to(self.files)) not in record.files:
                path.unlink()

    @contextmanager
    def locked(self, stall_timeout: float, watch: Callable[[int], None]) -> Iterator[None]:
        """Hold the lock; while another process does, `watch(bytes)` hears how far it is.

        Raises NoProgress when that one has stood still for `stall_timeout` seconds.
        """
        try:
            self._lock.parent.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(self._lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        except OSError as error:
            raise disk_error(error, self._lock) from error
        try:
            self._wait(descriptor, stall_timeout, watch)
            yield
        finally:
            os.close(descriptor)

    def _wait(self, descriptor: int, stall_timeout: float, watch: Callable[[int], None]) -> None:
        size, moved = -1, time.monotonic()
        while True:
            try:
                return fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                pass
            now = self._arrived()
            if now != size:
                size, moved = now, time.monotonic()
                watch(now)
            if time.monotonic() - moved > stall_timeout:
                raise NoProgress(
                    f"another process holds {self._lock} and has brought nothing for "
                    f"{stall_timeout:g} s",
                    cure="end that process",
                )
            time.sleep(min(0.2, stall_timeout / 4))

    def _arrived(self) -> int:
        total = 0
        for path in self.files.rglob("*"):
            try:
                total += path.stat().st_size if path.is_file() else 0
            except OSError:  # renamed meanwhile
                continue
        return total


def _sync(path: Path) -> None:
    """Have a file or folder on the disk before the name that makes it count."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
