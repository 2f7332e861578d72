"""`flatwake load`: waves of users against a server, and a verdict."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from . import bounds, compare, prompts, session
from .engine import Engine
from .errors import LoadError
from .menu import KINDS, Order, kinds
from .plan import STRIKES, Plan
from .probe import Probed, probe
from .progress import Progress, summary
from .report import Outcome, build
from .served import served

app = typer.Typer(add_completion=False, rich_markup_mode="markdown")

_TARGETS = "Address of a server, or a manifest; with --compare the old report and the new one."
_PROFILE = f"{', '.join(prompts.PROFILES)}; chat by default, endurance with --short."
_WAVES = (
    f"Which of {', '.join(KINDS)}; all is all of them. Besides {' and '.join(STRIKES)}, which "
    "strike the engine and want somebody who starts the server again."
)
_WORKERS = "Leave the users to so many workers, which join with --worker; 0: play them here."
_WORKER = "Play users for a run that was started with --workers there, until it ends."
_OUT = Path("build/load")


@app.command()
def load(
    targets: Annotated[list[str] | None, typer.Argument(metavar="TARGET", help=_TARGETS)] = None,
    short: Annotated[bool, typer.Option("--short", help="Everything once and briefly.")] = False,
    users: Annotated[str, typer.Option(help="Users of the steady waves.")] = "1,4,8",
    waves: Annotated[str, typer.Option(help=_WAVES)] = "all",
    profile: Annotated[str | None, typer.Option(help=_PROFILE)] = None,
    replay: Annotated[Path | None, typer.Option(help="Ask these prompts (JSON lines).")] = None,
    seconds: Annotated[float | None, typer.Option(help="Length of each steady part.")] = None,
    requests: Annotated[int | None, typer.Option(help="Requests of an endurance run.")] = None,
    minutes: Annotated[float | None, typer.Option(help="Least length of such a run.")] = None,
    runs: Annotated[int | None, typer.Option(help="How often that run is made.")] = None,
    burst: Annotated[int | None, typer.Option(help="Users at once in the burst.")] = None,
    seed: Annotated[int, typer.Option(help="Decides every prompt, length and pause.")] = 1,
    peer: Annotated[str | None, typer.Option(help="Address to measure in turns.")] = None,
    model: Annotated[str | None, typer.Option(help="Which model; the first by default.")] = None,
    api_key: Annotated[str | None, typer.Option(envvar="OPENAI_API_KEY", help="Key.")] = None,
    workers: Annotated[int, typer.Option(min=0, help=_WORKERS)] = 0,
    bind: Annotated[str, typer.Option(help="Where workers join: host:port, or :port.")] = ":5557",
    worker: Annotated[str | None, typer.Option(metavar="HOST:PORT", help=_WORKER)] = None,
    out: Annotated[Path, typer.Option(help="Folder of report.json and report.html.")] = _OUT,
    comparing: Annotated[bool, typer.Option("--compare", help="Compare two reports.")] = False,
) -> None:
    """Play waves of users against a server and judge it.

    Writes report.json and report.html. Ends with 0 only when every promise holds, with 1 when
    one doesn't, and with 2 when there was nothing to judge.
    """
    console = Console()
    try:
        targets = targets or []
        if worker is not None:
            session.work(worker, api_key)
        if comparing:
            _compare(console, [Path(each) for each in targets])
            return
        if len(targets) != 1:
            raise LoadError("give one address or manifest; a second server goes to --peer")
        order = Order(
            short=short,
            users=_numbers(users),
            kinds=kinds(waves),
            profile=profile,
            seconds=seconds,
            requests=requests,
            minutes=minutes,
            runs=runs,
            burst=burst,
        )
        recorded = _recorded(replay)
        _make(out)
        with served(targets[0], out / "server.log", restart=order.strikes) as place:
            probed = [probe("ours", place.url, api_key=api_key, model=model, queue=place.queue)]
            if order.strikes:
                Engine.find(place.url, api_key)  # before the run: a wave can't be made up for
            if peer:
                probed.append(probe("peer", peer, api_key=api_key))
            names = "peer" if len(probed) > 1 else None
            plan = Plan(
                tuple(each.target for each in probed),
                order.waves(probed[0].target, names),
                seed,
                recorded,
                workers,
                _address(bind),
            )
            outcome = _run(console, plan, probed)
    except LoadError as error:
        console.print(f"error: {error}", style="red", highlight=False, markup=False)
        raise typer.Exit(2) from error
    _write(console, outcome, out)
    raise typer.Exit(0 if outcome.holds else 1)


def _run(console: Console, plan: Plan, probed: list[Probed]) -> Outcome:
    ours = probed[0]
    limits = bounds.load()  # before the run: what can't be judged needn't be played
    where = f"{ours.target.model} at {ours.target.url}"
    console.print(f"{where}, {len(plan.waves)} waves, seed {plan.seed}")
    if plan.workers:
        console.print(f"Waiting for {plan.workers} workers: flatwake load --worker HOST:PORT")
    with Progress(console) as progress:
        seen = session.play(plan, ours.processes, progress.watch)
    return build(seen, probed, limits, _command())


def _command() -> str:
    """What was typed, without a key."""
    words = list(sys.argv[1:])
    for index, word in enumerate(words):
        if word == "--api-key" and index + 1 < len(words):
            words[index + 1] = "…"
        elif word.startswith("--api-key="):
            words[index] = "--api-key=…"
    return shlex.join([Path(sys.argv[0]).name, *words])


def _numbers(text: str) -> tuple[int, ...]:
    try:
        return tuple(int(each) for each in text.split(","))
    except ValueError as error:
        raise LoadError(f"--users {text}: numbers with commas between, as in 1,4,8") from error


def _address(bind: str) -> str:
    if not bind.rpartition(":")[2].isdigit():
        raise LoadError(f"--bind {bind}: an address with a port, as in 0.0.0.0:5557 or :5557")
    return bind


def _recorded(path: Path | None) -> tuple[prompts.Prompt, ...]:
    if path is None:
        return ()
    try:
        return tuple(prompts.recorded(path))
    except (OSError, ValueError) as error:
        raise LoadError(str(error)) from error


def _make(out: Path) -> None:
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise LoadError(f"no report can be written to {out}: {error.strerror}") from error


def _write(console: Console, outcome: Outcome, out: Path) -> None:
    from . import page  # plotly takes a while to import, and only the end needs it

    (out / "report.json").write_text(json.dumps(outcome.report, indent=1) + "\n")
    (out / "report.html").write_text(page.render(outcome.report))
    summary(console, outcome.checks, outcome.holds, outcome.report["growing"])
    console.print(f"{out / 'report.html'}, {out / 'report.json'}")


def _compare(console: Console, paths: list[Path]) -> None:
    if len(paths) != 2:
        raise LoadError("--compare takes two reports, the old one first")
    old, new = (compare.load(path) for path in paths)
    table = Table("Wave", "Figure", "Old", "New", "Change", box=None)
    for row in compare.rows(old, new):
        style = "red" if row.worse else ""
        numbers = (f"{row.old:,.1f}", f"{row.new:,.1f}", f"{row.change:+.1%}")
        table.add_row(row.wave, row.figure, *numbers, style=style)
    console.print(table)
    for promise in compare.broken(old, new):
        console.print(f"held before: {promise}", style="red", markup=False)


if __name__ == "__main__":
    app()
