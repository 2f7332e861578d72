"""An HTTP server for downloads that does to clients what networks and servers do."""

from __future__ import annotations

import hashlib
import re
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from email.message import Message
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path


@dataclass
class Fault:
    """What one request meets instead of a plain answer.

    status, headers: an answer without the file. drop: close the connection after so many bytes.
    claim: a Content-Length of its own. stall: send nothing more after `drop` bytes, but stay.
    ranges: False ignores Range. etag: another version's. shift: answer a range that begins later.
    """

    status: int | None = None
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    drop: int | None = None
    stall: bool = False
    claim: int | None = None
    ranges: bool = True
    etag: str | None = None
    shift: int = 0


@dataclass
class Seen:
    path: str
    headers: Message
    sent: int = 0


class FileServer:
    """Serves `files` by path with ranges; each request takes the next of `faults`, if any is left.

    `seen` are the requests. `on_sent(path, sent)` is called after each block of `block` bytes.
    """

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.faults: list[Fault | None] = []
        self.seen: list[Seen] = []
        self.block = 1 << 16
        self.etags = True
        self.on_sent: Callable[[str, int], None] = lambda path, sent: None
        self.closing = threading.Event()
        self.url = ""

    def next_fault(self) -> Fault:
        return (self.faults.pop(0) if self.faults else None) or Fault()

    @property
    def sent(self) -> int:
        return sum(seen.sent for seen in self.seen)


CERTIFICATE = Path(__file__).with_name("localhost.pem")
"""Self-signed, with its key, for localhost and 127.0.0.1: for tests alone."""


@contextmanager
def serving(*, tls: bool = False) -> Iterator[FileServer]:
    """A server on a free port of 127.0.0.1."""
    files = FileServer()

    class Handler(_Handler):
        server_files = files

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    scheme = "https" if tls else "http"
    files.url = f"{scheme}://127.0.0.1:{server.server_address[1]}"
    if tls:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(CERTIFICATE)
        server.socket = context.wrap_socket(
            server.socket, server_side=True, do_handshake_on_connect=False
        )
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield files
    finally:
        files.closing.set()
        server.shutdown()
        thread.join()
        server.server_close()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server_files: FileServer

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        pass

    def handle(self) -> None:
        with suppress(ConnectionError, ssl.SSLError):  # a client may go away at any time
            super().handle()

    def do_GET(self) -> None:
        files = self.server_files
        seen = Seen(self.path, self.headers)
        files.seen.append(seen)
        fault = files.next_fault()
        data = files.files.get(self.path)
        if fault.status is not None:
            self._answer(fault.status, fault.headers, fault.body)
        elif data is None:
            self._answer(404, {}, b"")
        else:
            self._file(data, fault, seen)

    def _answer(self, status: int, headers: dict[str, str], body: bytes) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _file(self, data: bytes, fault: Fault, seen: Seen) -> None:
        etag = fault.etag or '"' + hashlib.sha256(data).hexdigest()[:16] + '"'
        match = re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range", ""))
        begin = int(match[1]) if match and fault.ranges else 0
        if self.headers.get("If-Range", etag) != etag:
            begin = 0
        if begin >= len(data) > 0 and begin:
            return self._answer(416, {"Content-Range": f"bytes */{len(data)}"}, b"")
        partial = begin > 0
        begin += fault.shift if partial else 0
        self.send_response(206 if partial else 200)
        if partial:
            self.send_header("Content-Range", f"bytes {begin}-{len(data) - 1}/{len(data)}")
        if self.server_files.etags:
            self.send_header("ETag", etag)
        for name, value in fault.headers.items():
            self.send_header(name, value)
        length = len(data) - begin if fault.claim is None else fault.claim
        self.send_header("Content-Length", str(length))
        self.end_headers()
        self._body(data[begin:], fault, seen)
        return None

    def _body(self, data: bytes, fault: Fault, seen: Seen) -> None:
        end = len(data) if fault.drop is None else min(fault.drop, len(data))
        try:
            for at in range(0, end, self.server_files.block):
                block = data[at : min(at + self.server_files.block, end)]
                self.wfile.write(block)
                seen.sent += len(block)
                self.server_files.on_sent(seen.path, seen.sent)
        except OSError:
            self.close_connection = True
            return
        if fault.stall:
            self.server_files.closing.wait(30)
        if fault.drop is not None or fault.claim is not None:
            self.close_connection = True
