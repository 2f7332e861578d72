"""A manifest is loaded where it runs, or started; what can't be is one clear error."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import urlsplit

import pytest
from fake_servers import Start, free_port
from flatwake_loadtest.errors import LoadError
from flatwake_loadtest.served import served

MANIFEST = """\
apiVersion: flatwake.dev/v1alpha1
kind: InferenceServer
metadata:
  name: loaded
spec:
  model:
    source: file:///nowhere/model.gguf
  limits:
    queue: 3
  endpoint:
    port: {port}
"""


def manifest(folder: Path, port: int | None) -> str:
    file = folder / "server.yaml"
    file.write_text(MANIFEST.format(port=port))
    return str(file)


def test_a_running_server_of_the_manifest_is_used(start: Start, tmp_path: Path) -> None:
    url = start()
    with served(manifest(tmp_path, urlsplit(url).port), tmp_path / "log") as place:
        assert (place.url, place.queue) == (url, 3)
    assert not (tmp_path / "log").exists()


def test_an_address_is_taken_as_it_is(tmp_path: Path) -> None:
    with served("http://somewhere:8000", tmp_path / "log") as place:
        assert (place.url, place.queue) == ("http://somewhere:8000", None)


def test_a_server_that_cannot_start_says_why(tmp_path: Path) -> None:
    name = manifest(tmp_path, free_port())
    with pytest.raises(LoadError, match="before it was ready"), served(name, tmp_path / "log"):
        pass
    assert "/nowhere/model.gguf" in (tmp_path / "log").read_text()


def test_a_manifest_with_a_fault_is_named(tmp_path: Path) -> None:
    file = tmp_path / "server.yaml"
    file.write_text("kind: Something\n")
    with pytest.raises(LoadError, match=r"server\.yaml"), served(str(file), tmp_path / "log"):
        pass
