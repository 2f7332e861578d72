"""`/status` while there is no server yet: what fetches, and how far it is."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING

from flatwake_service.http import listener

if TYPE_CHECKING:
    from flatwake_service.manifest import ServerStatus


@contextmanager
def answering(port: int, status: Callable[[], ServerStatus]) -> Iterator[int]:
    """Answer `GET /status` on all addresses meanwhile; gives the port (0 takes a free one).

    `status` is called for each request, in a thread of its own. Raises PortInUse.
    """

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            found = self.path.split("?")[0] == "/status"
            body = status().model_dump_json().encode() if found else b"not found\n"
            self.send_response(200 if found else 404)
            self.send_header("Content-Type", "application/json" if found else "text/plain")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            """The operator asks every few seconds: no line for that."""

    server = ThreadingHTTPServer(("", port), Handler, bind_and_activate=False)
    server.socket.close()
    server.socket = listener.bind(None, port, "--status-port")
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.1,), daemon=True)
    thread.start()
    try:
        yield server.socket.getsockname()[1]
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
