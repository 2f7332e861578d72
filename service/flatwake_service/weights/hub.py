"""Files of a Hugging Face repository (or of a mirror, by HF_ENDPOINT)."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, unquote

from flatwake_service.errors import FetchError, SourceDenied, SourceNotFound
from flatwake_service.manifest.sources import Source
from flatwake_service.weights.download import Downloader, Remote

# What a server needs of a repository, beside its weights.
_COMPANIONS: Final = (
    "config.json",
    "generation_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "chat_template.jinja",
    "chat_template.json",
)
_INDEX: Final = "model.safetensors.index.json"


def hub_token(environ: Mapping[str, str] = os.environ) -> str | None:
    """The user's token: HF_TOKEN, or the file that Hugging Face's own login writes."""
    if token := environ.get("HF_TOKEN", "").strip():
        return token
    home = Path(environ.get("HF_HOME") or Path.home() / ".cache" / "huggingface")
    path = Path(environ.get("HF_TOKEN_PATH") or home / "token")
    try:
        return path.read_text().strip() or None
    except OSError:
        return None


def resolve_hub(
    source: Source, downloader: Downloader, token: str | None
) -> tuple[str, list[Remote]]:
    """(commit, files) of `hf://org/repo@revision[/file]`. Raises FetchError and its kinds."""
    endpoint = os.environ.get("HF_ENDPOINT", "").rstrip("/") or "https://huggingface.co"
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    label = f"{source.place}@{unquote(source.revision)}"
    revision = quote(unquote(source.revision), safe="")
    url = f"{endpoint}/api/models/{source.place}/revision/{revision}?blobs=true"
    try:
        listing = _object(downloader.get(url, headers, label), label)
    except SourceDenied as error:
        # The hub says 401 of what doesn't exist, too, lest it tell what is private.
        raise SourceDenied(
            f"{label}: the hub denies access, or there is no such repository", cure=error.cure
        ) from error
    commit = listing.get("sha")
    if not isinstance(commit, str) or not commit.isalnum():
        raise FetchError(f"{label}: the hub's answer names no commit")
    files = _files(listing, label)
    wanted = _one(files, source.path, label) if source.path else _model(files, label)
    return commit, [
        Remote(
            # One file lies at the top, as `Source.location` says.
            name=name.rsplit("/", 1)[-1] if source.path else name,
            url=f"{endpoint}/{source.place}/resolve/{commit}/{quote(name)}",
            label=f"{label}/{name}",
            size=files[name][0],
            sha256=files[name][1],
            headers=headers,
        )
        for name in wanted
    ]


def _object(body: bytes, label: str) -> dict[str, Any]:
    try:
        value = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise FetchError(f"{label}: the hub's answer isn't JSON: {error}") from error
    if not isinstance(value, dict):
        raise FetchError(f"{label}: the hub's answer is no object")
    return value


def _files(listing: Mapping[str, Any], label: str) -> dict[str, tuple[int | None, str | None]]:
    """(size, SHA-256) by name; the hub knows the hash of large files only."""
    files: dict[str, tuple[int | None, str | None]] = {}
    siblings = listing.get("siblings")
    for entry in siblings if isinstance(siblings, list) else []:
        name = entry.get("rfilename") if isinstance(entry, dict) else None
        if not isinstance(name, str) or name.startswith("/") or ".." in name.split("/"):
            raise FetchError(f"{label}: the hub lists a file that can't be one: {name!r}")
        lfs = entry.get("lfs")
        lfs = lfs if isinstance(lfs, dict) else {}
        size, sha256 = entry.get("size", lfs.get("size")), lfs.get("sha256")
        files[name] = (
            size if isinstance(size, int) else None,
            sha256 if isinstance(sha256, str) else None,
        )
    return files


def _one(files: Mapping[str, object], path: str, label: str) -> list[str]:
    if path not in files:
        kind = path.rsplit(".", 1)[-1]
        like = ", ".join(sorted(name for name in files if name.endswith(kind))[:20])
        raise SourceNotFound(f"{label} has no file {path}", cure=f"it has {like or 'none like it'}")
    return [path]


def _model(files: Mapping[str, object], label: str) -> list[str]:
    """The files of a whole model: configuration, tokenizer and safetensors."""
    weights = [name for name in files if name.endswith(".safetensors") and "/" not in name]
    # Some repositories hold the same weights twice, in their maker's own layout.
    weights = [name for name in weights if name.startswith("model")] or weights
    if not weights:
        found = sorted(name for name in files if name.endswith(".gguf"))
        cure = f"name one of {', '.join(found[:20])}" if found else "take another repository"
        raise SourceNotFound(f"{label} has no safetensors at its top", cure=cure)
    if "tokenizer.json" not in files:
        raise _no_tokenizer(files, label)
    return sorted({*weights, *(name for name in (*_COMPANIONS, _INDEX) if name in files)})


def _no_tokenizer(files: Mapping[str, object], label: str) -> SourceNotFound:
    """Judged before gigabytes of weights are fetched that couldn't be served."""
    older = [name for name in ("tokenizer.model", "vocab.json", "tekken.json") if name in files]
    if not older:
        return SourceNotFound(
            f"{label} has no tokenizer.json", cure="take a repository that has one"
        )
    return SourceNotFound(
        f"{label} has no tokenizer.json, only {', '.join(older)}, which isn't read",
        cure="take a repository of the model that has one, or a GGUF file; or make one with "
        "transformers, AutoTokenizer.from_pretrained(…).save_pretrained(FOLDER), and serve FOLDER "
        "with the weights beside it",
    )
