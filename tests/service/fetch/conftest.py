"""A server to download from, and no waiting between attempts."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import httpx
import pytest
from fetched_file import DATA
from file_server import FileServer, serving
from flatwake_service.weights import download

CLIENT = httpx.Client
CERTIFICATES = ssl.create_default_context()


@pytest.fixture(autouse=True)
def _certificates_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reading the certificates takes longer than the rest of a test."""
    monkeypatch.setattr(httpx, "Client", partial(CLIENT, verify=CERTIFICATES))


@pytest.fixture
def real_certificates(monkeypatch: pytest.MonkeyPatch) -> None:
    """Certificates as the environment has them."""
    monkeypatch.setattr(httpx, "Client", CLIENT)


@pytest.fixture
def server() -> Iterator[FileServer]:
    with serving() as files:
        yield files


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """What the downloads would have waited, in seconds."""
    waited: list[float] = []
    monkeypatch.setattr(download, "sleep", waited.append)
    return waited


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "cache"


@pytest.fixture
def source(server: FileServer) -> str:
    server.files["/models/m.gguf"] = DATA
    return f"{server.url}/models/m.gguf"
