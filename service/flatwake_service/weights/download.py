"""Files over HTTP, resumed where they stopped, whatever happens on the way."""

from __future__ import annotations

import logging
import random
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from pathlib import Path
from time import monotonic, sleep
from typing import BinaryIO, Final

import httpx

from flatwake_service.errors import (
    DigestMismatch,
    FetchError,
    NoProgress,
    SourceDenied,
    SourceNotFound,
)
from flatwake_service.weights.partial import Partial
from flatwake_service.weights.volume import disk_error

READ_TIMEOUT: Final = 30.0
"""Seconds of silence after which a connection is given up for a new one."""
ATTEMPTS: Final = 7
"""Failures in a row, without a new byte between them, that end a download."""
_RETRIED: Final = frozenset({408, 425, 429, 500, 502, 503, 504})
_log: Final = logging.getLogger("flatwake.fetch")


@dataclass(frozen=True, slots=True)
class Remote:
    """A file to download. `label` is how messages call it (an address may hold secrets)."""

    name: str
    url: str
    label: str
    size: int | None = None
    sha256: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)


class Patience:
    """How long to go on without a new byte."""

    def __init__(self, stall_timeout: float) -> None:
        self._stall_timeout = stall_timeout
        self._moved = monotonic()
        self._best = 0
        self._failures = 0

    def progress(self, size: int) -> None:
        """Bytes have arrived; only more than ever before count."""
        if size > self._best:
            self._best, self._moved, self._failures = size, monotonic(), 0

    @property
    def left(self) -> float:
        return self._stall_timeout - (monotonic() - self._moved)

    def after(self, failure: str, wait: float | None = None) -> None:
        """Wait for the next attempt. Raises NoProgress, or FetchError after too many."""
        if wait is None:
            self._failures += 1
            if self._failures >= ATTEMPTS:
                raise FetchError(f"{failure} ({ATTEMPTS} attempts)")
            wait = min(30.0, 0.25 * 2**self._failures) * random.uniform(0.5, 1.0)
        if wait >= self.left:
            raise NoProgress(
                f"{failure}; no byte has arrived for {self._stall_timeout - self.left:.0f} s",
                cure=f"it would go on where it stopped (stall timeout {self._stall_timeout:g} s)",
            )
        _log.warning("%s; trying again in %.1f s", failure, wait)
        sleep(wait)


class _Again(Exception):
    """The attempt has ended early; `wait` is what the server asked for, in seconds."""

    def __init__(self, failure: str, wait: float | None = None) -> None:
        super().__init__(failure)
        self.failure, self.wait = failure, wait


class Downloader:
    """Downloads files one after another.

    `on_bytes(count, size)` hears of each step: bytes that have arrived (negative: were thrown
    away) and the size of the file that they belong to, if it is known.
    """

    def __init__(
        self,
        client: httpx.Client,
        stall_timeout: float,
        on_bytes: Callable[[int, int | None], None] = lambda count, size: None,
    ) -> None:
        self._client = client
        self._stall_timeout = stall_timeout
        self._on_bytes = on_bytes

    def get(self, url: str, headers: Mapping[str, str], label: str, limit: int = 64 << 20) -> bytes:
        """A small document, whole. Raises FetchError and its kinds."""
        patience = Patience(self._stall_timeout)
        while True:
            try:
                with self._request(url, headers, label, patience) as response:
                    _judge(response, label)
                    body = b""
                    for block in response.iter_bytes():
                        body += block
                        if len(body) > limit:
                            raise FetchError(f"{label} is larger than {limit} bytes")
                    return body
            except _Again as again:
                patience.after(again.failure, again.wait)

    def download(self, remote: Remote, target: Path, note: Path) -> str:
        """Bring `remote` to `target` and return its SHA-256 in hex.

        `note` is kept beside it until then. Raises FetchError and its kinds; what has arrived
        stays, unless it turns out to be wrong.
        """
        try:
            return self._download(remote, target, note)
        except OSError as error:
            raise disk_error(error, target) from error

    def _download(self, remote: Remote, target: Path, note: Path) -> str:
        patience = Patience(self._stall_timeout)
        partial = Partial(target, note, remote.sha256 or remote.url)
        self._on_bytes(partial.size, _total(remote, partial))
        patience.progress(partial.size)
        while True:
            try:
                self._attempt(remote, partial, patience)
            except _Again as again:
                patience.after(again.failure, again.wait)
                continue
            found = partial.hash.hexdigest()
            if remote.sha256 in (None, found):
                return found
            joined = partial.joined
            size = partial.size
            self._on_bytes(-size, _total(remote, partial))
            partial.discard()
            if not joined:
                raise DigestMismatch(
                    f"{remote.label} ({size} bytes) has the digest sha256:{found}, "
                    f"not sha256:{remote.sha256}",
                    cure="check the source, or give the digest that you trust",
                )
            _log.warning("%s was joined from parts that don't fit; beginning anew", remote.label)

    def _attempt(self, remote: Remote, partial: Partial, patience: Patience) -> None:
        """One request. Returns when the file is whole."""
        validator = partial.validator(remote.sha256 is not None)
        if validator is not None and partial.size == _total(remote, partial):
            return
        headers = {**remote.headers, "Accept-Encoding": "identity"}
        if validator is not None:
            headers["Range"] = f"bytes={partial.size}-"
            if validator:
                headers["If-Range"] = validator
        with self._request(remote.url, headers, remote.label, patience) as response:
            if response.status_code == 416 and validator is not None:
                self._on_bytes(-partial.size, _total(remote, partial))
                partial.discard()
                raise _Again(f"{remote.label}: the server has fewer bytes than arrived")
            _judge(response, remote.label)
            file = self._open(response, remote, partial)
            try:
                self._receive(response, file, remote, partial, patience)
            finally:
                file.close()
        total = _total(remote, partial)
        if total is not None and partial.size != total:
            if partial.size > total:
                self._on_bytes(-partial.size, _total(remote, partial))
                partial.discard()
            raise _Again(f"{remote.label} has {partial.size} bytes of {total}")

    def _open(self, response: httpx.Response, remote: Remote, partial: Partial) -> BinaryIO:
        """The file to write the body to, at the right place."""
        if response.headers.get("Content-Encoding", "identity") != "identity":
            raise FetchError(f"{remote.label} comes compressed, though that wasn't asked for")
        etag = response.headers.get("ETag")
        if response.status_code == 206:
            begin, total = _content_range(response, remote.label)
            same = partial.version is not None and partial.version.get("etag") in (etag, None)
            if (
                begin == partial.size
                and same
                and (total is None or total == _total(remote, partial))
            ):
                return partial.resume()
            partial.version = None
            raise _Again(f"{remote.label}: the server sent another part than was asked for")
        length = response.headers.get("Content-Length", "")
        version: dict[str, object] = {
            "etag": etag,
            "modified": response.headers.get("Last-Modified"),
            "total": int(length) if length.isdecimal() else None,
        }
        if remote.size is not None and version["total"] not in (None, remote.size):
            raise _Again(
                f"{remote.label} has {version['total']} bytes, {remote.size} were announced"
            )
        self._on_bytes(-partial.size, _total(remote, partial))
        return partial.restart(version)

    def _receive(
        self,
        response: httpx.Response,
        file: BinaryIO,
        remote: Remote,
        partial: Partial,
        patience: Patience,
    ) -> None:
        for block in response.iter_raw():
            file.write(block)
            partial.hash.update(block)
            partial.size += len(block)
            patience.progress(partial.size)
            self._on_bytes(len(block), _total(remote, partial))

    @contextmanager
    def _request(
        self, url: str, headers: Mapping[str, str], label: str, patience: Patience
    ) -> Iterator[httpx.Response]:
        """A response whose body is read inside; what the network does to it is `_Again`."""
        silence = max(0.1, min(READ_TIMEOUT, patience.left))
        timeout = httpx.Timeout(silence, connect=min(10.0, silence))
        try:
            with self._client.stream("GET", url, headers=headers, timeout=timeout) as response:
                yield response
        except (httpx.UnsupportedProtocol, httpx.TooManyRedirects, httpx.InvalidURL) as error:
            raise FetchError(f"{label}: {_said(error)}") from error
        except httpx.TransportError as error:
            if "CERTIFICATE_VERIFY_FAILED" in str(error):
                raise FetchError(
                    f"{label}: {error}",
                    cure="name your authority's certificates with SSL_CERT_FILE",
                ) from error
            raise _Again(f"{label}: {_said(error)}") from error


def _total(remote: Remote, partial: Partial) -> int | None:
    if remote.size is not None:
        return remote.size
    total = partial.version.get("total") if partial.version else None
    return total if isinstance(total, int) else None


def _content_range(response: httpx.Response, label: str) -> tuple[int, int | None]:
    """(first byte, bytes in all) of a partial response."""
    text = response.headers.get("Content-Range", "")
    match = re.fullmatch(r"bytes (\d{1,18})-\d{1,18}/(\d{1,18}|\*)", text)
    if match is None:
        raise _Again(f"{label}: the server's Content-Range is {text[:80]!r}")
    return int(match[1]), None if match[2] == "*" else int(match[2])


def _judge(response: httpx.Response, label: str) -> None:
    """Let only a body through that is what was asked for."""
    code = response.status_code
    if code in _RETRIED:
        raise _Again(f"{label}: HTTP {code}", _retry_after(response))
    if code in (401, 403):
        sent = "Authorization" in response.request.headers
        raise SourceDenied(
            f"{label}: HTTP {code}",
            cure="the token has no access to it"
            if sent
            else "it wants a token (HF_TOKEN, --token)",
        )
    if code in (404, 410):
        raise SourceNotFound(f"{label}: HTTP {code}", cure="check its name and revision")
    if code not in (200, 206):
        raise FetchError(f"{label}: HTTP {code}")
    schemes = [r.url.scheme for r in (*response.history, response)]
    if "https" in schemes and schemes[-1] == "http":
        raise FetchError(f"{label}: the server redirects from https to http")


def _retry_after(response: httpx.Response) -> float | None:
    """Seconds that the server asks to wait, if it does."""
    text = response.headers.get("Retry-After", "").strip()
    if text.isdecimal() and len(text) < 10:
        return float(text)
    try:
        return max(0.0, (parsedate_to_datetime(text) - datetime.now(UTC)).total_seconds())
    except (ValueError, TypeError):
        return None


def _said(error: Exception) -> str:
    return str(error) or type(error).__name__
