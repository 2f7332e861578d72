"""A model comes into the cache whole or not at all, and only once."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from fetched_file import DATA, DIGEST, sha
from file_server import CERTIFICATE, Fault, FileServer, serving
from flatwake_service.errors import (
    CacheUnwritable,
    DigestMismatch,
    FetchError,
    SourceError,
    SourceNotFound,
)
from flatwake_service.manifest.sources import parse_source
from flatwake_service.weights import fetch as package
from flatwake_service.weights.fetch import Fetched, fetch


def test_a_local_file_is_used_where_it_lies(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(DATA)
    assert fetch(f"file://{path}") == Fetched(path, "", None, len(DATA))
    assert fetch(f"file://{path}", digest=DIGEST).digest == DIGEST
    with pytest.raises(DigestMismatch, match=f"has the digest {DIGEST}, not sha256:00"):
        fetch(f"file://{path}", digest="sha256:" + "0" * 64)


def test_a_local_folder_s_digest_is_over_its_sorted_lines(tmp_path: Path) -> None:
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "x").write_bytes(b"1")
    (tmp_path / "a").write_bytes(b"2")
    lines = sorted([f"{sha(b'1')}  b/x\n", f"{sha(b'2')}  a\n"])
    digest = "sha256:" + sha("".join(lines).encode())
    assert fetch(f"file://{tmp_path}", digest=digest).digest == digest


def test_a_missing_local_path_is_named(tmp_path: Path) -> None:
    with pytest.raises(SourceNotFound, match=r"no file or folder .*nowhere"):
        fetch(f"file://{tmp_path}/nowhere")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("ftp://host/file", "is no model source"),
        ("hf://only-one", "is no model source"),
        ("https://host", "is no model source"),
        ("https://host/", "is no model source|names no file"),
        ("pvc://claim/path", "mounted by the operator"),
        ("http://host/file", r"could be changed on its way; give its digest"),
        ("hf://org/../repo", "leaves its place|no model source"),
    ],
)
def test_what_is_no_source_is_refused(text: str, message: str, cache: Path) -> None:
    with pytest.raises(SourceError, match=message) as caught:
        fetch(text, cache=cache)
    assert caught.value.exit_code == 2


@pytest.mark.parametrize("digest", ["abc", "sha256:abc", "md5:" + "0" * 64, "0" * 64])
def test_what_is_no_digest_is_refused(digest: str, source: str, cache: Path) -> None:
    with pytest.raises(SourceError, match="is no digest"):
        fetch(source, digest=digest, cache=cache)


def test_a_file_lies_where_the_manifest_says_and_comes_once(
    server: FileServer, source: str, cache: Path
) -> None:
    seen: list[tuple[int, int | None]] = []
    fetched = fetch(
        source, digest=DIGEST, cache=cache, progress=lambda done, total: seen.append((done, total))
    )
    assert fetched == Fetched(cache / parse_source(source).key / "m.gguf", "", DIGEST, len(DATA))
    assert str(fetched.path) == parse_source(source).location(str(cache))
    assert fetched.path.read_bytes() == DATA
    assert seen[-1] == (len(DATA), len(DATA))
    assert fetch(source, digest=DIGEST.upper().replace("SHA", "sha"), cache=cache) == fetched
    assert len(server.seen) == 1
    assert {p.name for p in cache.iterdir()} == {
        fetched.path.parent.name,
        f".{fetched.path.parent.name}.lock",
    }


def test_a_token_goes_to_the_source_and_no_secret_into_a_message(
    server: FileServer, source: str, cache: Path
) -> None:
    server.faults = [Fault(status=404)]
    secret = source.replace("http://", "http://user:password@") + "?signature=hidden"
    server.files["/models/m.gguf?signature=hidden"] = DATA
    with pytest.raises(SourceNotFound) as caught:
        fetch(secret, digest=DIGEST, cache=cache)
    assert "password" not in str(caught.value)
    assert "hidden" not in str(caught.value)
    fetch(source, digest=DIGEST, cache=cache, token="t0ken")
    assert server.seen[-1].headers["Authorization"] == "Bearer t0ken"


def test_a_file_lost_or_cut_in_the_cache_is_fetched_again(
    server: FileServer, source: str, cache: Path
) -> None:
    path = fetch(source, digest=DIGEST, cache=cache).path
    for damage in (
        lambda: path.unlink(),
        lambda: os.truncate(path, 10),
        lambda: (path.parent / ".flatwake.json").write_text("{"),
    ):
        damage()
        assert fetch(source, digest=DIGEST, cache=cache).path.read_bytes() == DATA
    assert len(server.seen) == 4


def test_another_digest_than_the_cache_s_is_fetched_anew(
    server: FileServer, source: str, cache: Path
) -> None:
    fetch(source, digest=DIGEST, cache=cache)
    with pytest.raises(DigestMismatch):
        fetch(source, digest="sha256:" + "0" * 64, cache=cache)
    new = DATA[::-1]
    server.files["/models/m.gguf"] = new
    assert fetch(source, digest=f"sha256:{sha(new)}", cache=cache).path.read_bytes() == new


def test_an_unwritable_cache_is_named(source: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(CacheUnwritable, match="file"):
        fetch(source, digest=DIGEST, cache=tmp_path / "file" / "cache")


@pytest.mark.usefixtures("real_certificates")
def test_an_authority_of_the_user_s_own_is_trusted_by_ssl_cert_file(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving(tls=True) as server:
        server.files["/m.gguf"] = DATA
        monkeypatch.delenv("SSL_CERT_FILE", raising=False)
        monkeypatch.delenv("SSL_CERT_DIR", raising=False)
        with pytest.raises(FetchError, match=r"CERTIFICATE_VERIFY_FAILED.*with SSL_CERT_FILE"):
            fetch(f"{server.url}/m.gguf", cache=cache)
        monkeypatch.setenv("SSL_CERT_FILE", str(CERTIFICATE))
        assert fetch(f"{server.url}/m.gguf", cache=cache).digest == DIGEST


@pytest.mark.usefixtures("real_certificates")
def test_a_redirect_from_https_to_http_is_refused(
    server: FileServer, source: str, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(CERTIFICATE))
    with serving(tls=True) as secure:
        secure.faults = [Fault(status=302, headers={"Location": source})]
        with pytest.raises(FetchError, match="redirects from https to http"):
            fetch(f"{secure.url}/m.gguf", cache=cache)


def test_a_proxy_is_used_where_the_environment_names_one(
    server: FileServer, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", server.url)
    monkeypatch.setenv("no_proxy", "")
    server.files["http://models.example/m.gguf"] = DATA
    assert fetch("http://models.example/m.gguf", digest=DIGEST, cache=cache).digest == DIGEST


def test_the_default_cache_follows_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/xdg")
    monkeypatch.delenv("FLATWAKE_CACHE", raising=False)
    assert package.default_cache() == Path("/xdg/flatwake/models")
    monkeypatch.setenv("FLATWAKE_CACHE", "/own")
    assert package.default_cache() == Path("/own/models")
    monkeypatch.delenv("FLATWAKE_CACHE")
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert package.default_cache() == Path.home() / ".cache/flatwake/models"
