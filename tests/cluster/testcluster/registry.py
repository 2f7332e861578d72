"""A registry of images that keeps everything in memory: what `make push` needs of one."""

from __future__ import annotations

import hashlib
import re
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass
class Registry:
    """Blobs by digest, manifests by repository:tag."""

    address: str = ""
    blobs: dict[str, int] = field(default_factory=dict)
    manifests: dict[str, bytes] = field(default_factory=dict)
    uploads: dict[str, tuple[int, str]] = field(default_factory=dict)


@contextmanager
def serving() -> Iterator[Registry]:
    """A registry on the loopback, over plain HTTP."""
    registry = Registry()

    class Handler(_Handler):
        kept = registry

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        registry.address = f"127.0.0.1:{server.server_address[1]}"
        thread = threading.Thread(target=server.serve_forever, name="registry")
        thread.start()
        yield registry
        server.shutdown()
        thread.join()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    kept: Registry

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        found = re.search(r"/blobs/(sha256:\w+)$", self.path)
        known = self.path == "/v2/" or (found is not None and found[1] in self.kept.blobs)
        self._answer(200 if known else 404)

    def do_POST(self) -> None:
        b"".join(self._body())
        self._continue(f"{self.path.partition('?')[0].rstrip('/')}/{uuid.uuid4().hex}")

    def do_PATCH(self) -> None:
        self._take(self.path)
        self._continue(self.path)

    def do_PUT(self) -> None:
        if found := re.fullmatch(r"/v2/(.+)/manifests/(.+)", self.path):
            body = b"".join(self._body())
            self.kept.manifests[f"{found[1]}:{found[2]}"] = body
            digest = f"sha256:{hashlib.sha256(body).hexdigest()}"
            self._answer(201, {"Docker-Content-Digest": digest})
            return
        place, _, query = self.path.partition("?")
        size, digest = self._take(place)
        wanted = query.rpartition("digest=")[2].replace("%3A", ":")
        if f"sha256:{digest}" == wanted:
            self.kept.blobs[wanted] = size
        self._answer(201 if f"sha256:{digest}" == wanted else 400)

    def _take(self, place: str) -> tuple[int, str]:
        """Reads what a body adds to an upload. A client sends a blob in one PATCH."""
        size, digest = self.kept.uploads.get(place, (0, hashlib.sha256().hexdigest()))
        body = hashlib.sha256()
        count = 0
        for piece in self._body():
            body.update(piece)
            count += len(piece)
        if count:
            assert size == 0, "one piece a blob"
            size, digest = count, body.hexdigest()
        self.kept.uploads[place] = (size, digest)
        return size, digest

    def _body(self) -> Iterator[bytes]:
        if self.headers.get("Transfer-Encoding") == "chunked":
            while size := int(self.rfile.readline(), 16):
                yield self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
        elif length := int(self.headers.get("Content-Length", 0)):
            yield self.rfile.read(length)

    def _continue(self, place: str) -> None:
        self._answer(202, {"Location": place, "Range": "0-0"})

    def _answer(self, status: int, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in {**(headers or {}), "Content-Length": "0"}.items():
            self.send_header(name, value)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """What came is kept in the registry."""
