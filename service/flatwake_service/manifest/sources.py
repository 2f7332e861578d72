"""Where a model comes from: `model.source`, parsed."""

import hashlib
import re
from dataclasses import dataclass
from enum import StrEnum
from pathlib import PurePosixPath
from urllib.parse import unquote, urlsplit, urlunsplit


class Scheme(StrEnum):
    HF = "hf"
    HTTPS = "https"
    HTTP = "http"
    FILE = "file"
    PVC = "pvc"
    PYPI = "pypi"


FETCHED = frozenset({Scheme.HF, Scheme.HTTPS, Scheme.HTTP, Scheme.PYPI})
"""Schemes whose files `flatwake fetch` brings; the others are there already."""

SOURCE_PATTERN = (
    r"^(hf://[^/@\s]+/[^/@\s]+(@[^/\s]+)?(/\S+)?|https?://[^/\s]+/\S+|file:///\S+"
    r"|pvc://[a-z0-9]([-a-z0-9.]*[a-z0-9])?/\S+|pypi://[A-Za-z0-9._-]+==[^/\s]+/\S+)$"
)
SOURCE_FORMS = (
    "hf://org/repo@revision[/file], https://host/file, http://host/file (with a digest), "
    "file:///path, pvc://claim/path or pypi://package==version/file"
)


@dataclass(frozen=True)
class Source:
    """A parsed source.

    place: org/repo, the URL, the claim or the package; empty for file.
    revision: hf's branch, tag or commit (default main), pypi's version; else empty.
    path: the file or folder inside the place (for file: the absolute path); empty means all of it.
    """

    text: str
    scheme: Scheme
    place: str
    revision: str
    path: str

    @property
    def key(self) -> str:
        """A folder name for what this source brings: 16 hex digits of its text's SHA-256."""
        return hashlib.sha256(self.text.encode()).hexdigest()[:16]

    @property
    def is_file(self) -> bool:
        """Whether the source names one file; a Hugging Face source without a path is a folder."""
        return self.scheme is not Scheme.HF or bool(self.path)

    def location(self, cache: str) -> str:
        """Where the model is for `flatwake serve --model`.

        cache is the folder that `flatwake fetch --cache` fills (for pvc: the claim's mount point).
        Each source has a folder of its own there, so that pods of an old and of a new source can
        share one volume.
        """
        if self.scheme is Scheme.FILE:
            return self.path
        root = PurePosixPath(cache)
        if self.scheme is Scheme.PVC:
            return str(root / self.path)
        folder = root / self.key
        return str(folder / PurePosixPath(self.path).name) if self.path else str(folder)


def source_label(text: str) -> str:
    """A source as anybody may see it, in messages, `/status` and logs: without a user, a password
    and a query, which may be a signature.
    """
    parts = urlsplit(text)
    if parts.scheme not in (Scheme.HTTP, Scheme.HTTPS):
        return text
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))


def parse_source(text: str) -> Source:
    """Parses `model.source`; a ValueError lists the forms that exist."""
    if not re.match(SOURCE_PATTERN, text):
        raise ValueError(f"{text!r} is no model source: write {SOURCE_FORMS}")
    scheme, rest = text.split("://", 1)
    kind = Scheme(scheme)
    if ".." in rest.split("/"):
        raise ValueError(f"{text!r} leaves its place with '..': write the path without it")
    if kind is Scheme.HF:
        org, repo, *path = rest.split("/", 2)
        name, _, revision = repo.partition("@")
        return Source(text, kind, f"{org}/{name}", revision or "main", "".join(path).strip("/"))
    if kind in (Scheme.HTTP, Scheme.HTTPS):
        return Source(text, kind, text, "", unquote(urlsplit(text).path).rsplit("/", 1)[-1])
    if kind is Scheme.FILE:
        return Source(text, kind, "", "", rest)
    place, path_text = rest.split("/", 1)
    if kind is Scheme.PVC:
        return Source(text, kind, place, "", path_text)
    package, _, version = place.partition("==")
    return Source(text, kind, package, version, path_text)
