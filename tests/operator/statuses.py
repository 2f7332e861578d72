"""Pods' own /status, which the operator asks for, played by the test."""

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class StatusServer(ThreadingHTTPServer):
    """Answers /status of pods, which differ by their loopback address: `reports` by address."""

    def __init__(self, host: str) -> None:
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        super().__init__((host, 0), _Status)
        self.reports: dict[str, dict[str, Any]] = {}

    @property
    def port(self) -> int:
        return int(self.server_address[1])


class _Status(BaseHTTPRequestHandler):
    server: StatusServer

    def do_GET(self) -> None:
        report = self.server.reports.get(self.connection.getsockname()[0])
        body = json.dumps(report or {}).encode()
        self.send_response(200 if report else 404)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Says nothing."""


@contextmanager
def answering(host: str) -> Iterator[StatusServer]:
    with StatusServer(host) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()
