"""`flatwake up`: serve a manifest on this machine, without a cluster."""

from __future__ import annotations

import json
import platform
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from flatwake_service.http.service import Service
    from flatwake_service.manifest import Documents
    from flatwake_service.weights.fetch import Fetched, Progress

app = typer.Typer(add_completion=False, rich_markup_mode="markdown")

QUESTION = "What is a computer?"
PLATFORMS = {("Linux", "x86_64"), ("Linux", "aarch64")}


@app.command()
def up(
    manifest: Annotated[Path, typer.Argument(help="A file with one InferenceServer.")],
    host: Annotated[str, typer.Option(help="The address to listen on.")] = "127.0.0.1",
    port: Annotated[
        int | None,
        typer.Option(min=0, max=65535, help="Instead of endpoint.port; 0 takes a free one."),
    ] = None,
) -> None:
    """Fetch the model of a manifest and serve it here, as a cluster's pod would.

    ConfigMaps and Secrets that the manifest names are looked for in the same file. Ctrl-C drains
    the server and ends everything that was started.
    """
    from typer.main import get_command

    from flatwake_service.cli import serve
    from flatwake_service.manifest import Place, ignored_by_up, load, serve_arguments

    _check_platform()
    documents = load(manifest)
    server = documents.server
    ignored = ignored_by_up(server)
    if ignored:
        _say(f"Only a cluster uses, and so ignored here: {', '.join(ignored)}")
    fetched = _fetch(documents)
    with tempfile.TemporaryDirectory(prefix="flatwake-up-") as folder:
        keys = _write_keys(documents, Path(folder))
        template = _write_template(documents, Path(folder))
        place = Place(
            model=str(fetched.path),
            host=host,
            port=server.spec.endpoint.port if port is None else port,
            api_keys_dir=str(keys) if keys else None,
            chat_template=str(template) if template else None,
        )
        arguments = serve_arguments(server, place)

        def ready(service: Service, endpoint: str) -> None:
            _say(_welcome(service, endpoint, keys))

        code = get_command(serve.app)(
            arguments, prog_name="flatwake serve", standalone_mode=False, obj=ready
        )
    raise typer.Exit(code if isinstance(code, int) else 0)


def _check_platform() -> None:
    from flatwake_service.errors import FlatwakeError

    here = (platform.system(), platform.machine())
    if here not in PLATFORMS:
        raise FlatwakeError(
            f"flatwake runs on Linux on x86-64 or aarch64; this is {here[0]} on {here[1]}",
            cure="use a Linux machine, or a Linux container on this one",
        )


def _fetch(documents: Documents) -> Fetched:
    from flatwake_service.manifest import source_label
    from flatwake_service.weights.fetch import fetch

    model = documents.server.spec.model
    token = None
    if model.token_secret is not None:
        reference = model.token_secret
        token = _secret(documents, reference.name, reference.key, "spec.model.tokenSecret")
    with _progress(source_label(model.source)) as progress:
        return fetch(
            model.source,
            digest=model.digest,
            token=token.decode().strip() if token else None,
            progress=progress,
        )


def _secret(documents: Documents, name: str, key: str, field: str) -> bytes:
    from flatwake_service.manifest import ManifestError

    value = documents.secrets.get(name, {}).get(key)
    if value is None:
        raise ManifestError(
            f"there is no Secret {name} with the key {key} in the file: add it as a document",
            field=field,
            file=documents.path,
        )
    return value


def _write_keys(documents: Documents, folder: Path) -> Path | None:
    """The Secret of API keys as a folder, as a pod would have it mounted."""
    from flatwake_service.manifest import ManifestError

    reference = documents.server.spec.access.api_keys_secret
    if reference is None:
        return None
    secret = documents.secrets.get(reference.name)
    if secret is None:
        raise ManifestError(
            f"there is no Secret {reference.name} in the file: add it as a document",
            field="spec.access.apiKeysSecret",
            file=documents.path,
        )
    keys = folder / "keys"
    keys.mkdir(mode=0o700)
    for name, value in secret.items():
        (keys / name).write_bytes(value)
    return keys


def _write_template(documents: Documents, folder: Path) -> Path | None:
    from flatwake_service.manifest import ManifestError

    reference = documents.server.spec.model.chat_template
    if reference is None:
        return None
    template = documents.config_maps.get(reference.name, {}).get(reference.key)
    if template is None:
        raise ManifestError(
            f"there is no ConfigMap {reference.name} with the key {reference.key} in the file: "
            "add it as a document",
            field="spec.model.chatTemplate",
            file=documents.path,
        )
    path = folder / "chat_template.jinja"
    path.write_bytes(template)
    return path


def _welcome(service: Service, endpoint: str, keys: Path | None) -> str:
    """What to do now, ready to be copied."""
    settings = service.settings
    body = {
        "messages": [{"role": "user", "content": QUESTION}],
        "max_tokens": 100,
        "temperature": 0,
        "stream": True,
    }
    headers = "-H 'Content-Type: application/json'"
    chat = "flatwake chat" if endpoint.endswith(":8000/v1") else f"flatwake chat --url {endpoint}"
    if keys is not None:
        headers += ' -H "Authorization: Bearer $OPENAI_API_KEY"'
        chat = f"OPENAI_API_KEY=… {chat}"
    return "\n".join(
        [
            "",
            f"{settings.served_name} is served at {endpoint}",
            "",
            f"  curl -N {endpoint}/chat/completions {headers} -d '{json.dumps(body)}'",
            "",
            f"  {chat}",
            "    talks to it in another terminal",
            "",
            "Ctrl-C lets running requests finish and ends the server.",
            "",
        ]
    )


@contextmanager
def _progress(source: str) -> Iterator[Progress | None]:
    """A bar on a terminal; elsewhere a line when something is really fetched."""
    if not sys.stderr.isatty():
        told = False

        def tell(done: int, total: int | None) -> None:
            nonlocal told
            if not told:
                told = True
                size = f" ({total / 1e6:.0f} MB)" if total else ""
                _say(f"Fetching {source}{size}")

        yield tell
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        TextColumn,
        TimeRemainingColumn,
        TransferSpeedColumn,
    )
    from rich.progress import Progress as Bar

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
    )
    bar = Bar(*columns, console=Console(stderr=True), transient=True)
    task = bar.add_task("Fetching the model", total=None)

    def update(done: int, total: int | None) -> None:
        # A model that is in the cache shows no bar.
        bar.start()
        bar.update(task, completed=done, total=total)

    try:
        yield update
    finally:
        bar.stop()


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
