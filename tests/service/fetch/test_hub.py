"""A repository comes from a Hugging Face hub as a server needs it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from fetched_file import DATA, sha
from file_server import Fault, FileServer
from flatwake_service.errors import (
    CacheFull,
    DigestMismatch,
    FetchError,
    SourceDenied,
    SourceNotFound,
)
from flatwake_service.manifest.sources import parse_source
from flatwake_service.weights.fetch import fetch

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


def test_too_little_room_is_said_before_the_download(
    server: FileServer, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub(server, monkeypatch)
    usage = shutil.disk_usage(cache.parent)._replace(free=1000)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage)
    with pytest.raises(CacheFull, match=r"takes \d+ bytes, 1000 are free in .*cache"):
        fetch("hf://org/repo@main", cache=cache)
    assert [r.path for r in server.seen] == ["/api/models/org/repo/revision/main?blobs=true"]
