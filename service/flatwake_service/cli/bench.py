"""`flatwake bench`: speed on this machine, and how near it is to what the memory allows."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from flatwake_service.bench.layers import RunnerLayer
    from flatwake_service.engine.config import EngineConfig
    from flatwake_service.engine.runner import Runner
    from flatwake_service.text import Tokenizer

app = typer.Typer(add_completion=False, no_args_is_help=True, rich_markup_mode="markdown")

USERS = (1, 4, 8)
CONTEXT = 1024

ModelOption = Annotated[Path, typer.Argument(help="A GGUF file or a Hugging Face folder.")]
BackendOption = Annotated[str, typer.Option(help="auto, hip, cpu, reference, emulation or cuda.")]
ActivationsOption = Annotated[str, typer.Option(help="auto, float or int8.")]
TokensOption = Annotated[int, typer.Option(min=8, help="Tokens a user.")]
RoundsOption = Annotated[int, typer.Option(min=1, help="Measurements; the median counts.")]
GraphsOption = Annotated[str, typer.Option(help="Replay steps as graphs: auto, on or off.")]
OutputOption = Annotated[
    Path | None, typer.Option("--json", "--output", help="Write the figures as JSON, too.")
]


@app.command()
def speed(
    model: ModelOption,
    backend: BackendOption = "auto",
    activations: ActivationsOption = "auto",
    tokens: TokensOption = 64,
    rounds: RoundsOption = 3,
    users: Annotated[
        list[int] | None, typer.Option(min=1, max=8, help="Users at once, again and again.")
    ] = None,
    output: OutputOption = None,
) -> None:
    """Decode and prefill speed of the runner alone, and how near each op is to the machine's peaks.

    A share is the weights' bytes of a step, by its time, by the rate at which a buffer of as many
    bytes is read by the same threads; a GFLOP/s counts a multiply-add as two, and its share is of
    products on registers alone.
    """
    from flatwake_service.bench import limits

    config, tokenizer = _prepare(model, backend, activations)
    with _runner(config, tokenizer) as (layer, runner):
        _warn(rounds)
        speeds = limits.measure(runner, layer, users or USERS, tokens, rounds)
    print("\n".join(limits.table(config.backend, speeds)))
    _write(output, config, limits.figures(speeds))


@app.command()
def layers(
    model: ModelOption,
    backend: BackendOption = "auto",
    activations: ActivationsOption = "auto",
    tokens: TokensOption = 64,
    rounds: RoundsOption = 3,
    graphs: GraphsOption = "auto",
    output: OutputOption = None,
    apart: Annotated[
        bool, typer.Option("--apart", help="One core for the engine alone, the rest for the rest.")
    ] = False,
    stand_in: Annotated[
        float | None,
        typer.Option(
            min=1, help="An engine that emits so many tokens/s a user, and computes none."
        ),
    ] = None,
    stamps: Annotated[
        bool, typer.Option("--stamps", help="Measure how late a token comes to the client, too.")
    ] = False,
) -> None:
    """What the layers above the runner cost, measured in turn: A the runner at a fixed batch, B the
    engine process through its messages with detokenising and JSON, C a server over sockets.
    """
    from flatwake_service.bench import layering
    from flatwake_service.bench.cores import ANYWHERE, Cores

    config, tokenizer = _prepare(model, backend, activations, graphs)
    try:
        cores = Cores.apart() if apart else ANYWHERE
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--apart") from error
    _warn(rounds)
    before = os.getloadavg()[0]
    with layering.build(config, tokenizer, cores, stand_in=stand_in, stamps=stamps) as built:
        measured = list(layering.interleave(built, USERS, tokens, rounds))
    cores.release()
    figures = layering.figures(measured, USERS)
    figures["load_average"] = [round(before, 2), round(os.getloadavg()[0], 2)]
    print("\n".join(layering.table(figures)))
    _write(output, config, {"graphs": graphs, **figures})


@app.command()
def perplexity(
    model: ModelOption,
    text: Annotated[
        Path | None, typer.Option(help="A text file; else Python's reference, as pydoc has it.")
    ] = None,
    chunks: Annotated[int, typer.Option(min=1, help="Parts of the text.")] = 80,
    length: Annotated[int, typer.Option(min=8, help="Tokens a part.")] = 512,
    backend: BackendOption = "auto",
    output: OutputOption = None,
) -> None:
    """Perplexity of a text with float and with int8 activations, and how far their logits differ.

    As llama-perplexity counts: the second half of each part is scored, from an empty context.
    """
    import msgspec
    from rich.progress import Progress

    from flatwake_service.engine.runner import open_runner
    from flatwake_service.verify.perplexity import score

    config, tokenizer = _prepare(model, backend, "auto")
    runners = {}
    for kind in ("float", "int8"):
        own = msgspec.structs.replace(
            config, activations=kind, context_length=length + 1, look_ahead="off"
        )
        runners[kind] = open_runner(own, lambda phase, done, total: None)
    ids = tokenizer.encode(_text(text), add_special=False)
    with Progress() as progress:
        task = progress.add_task("scoring", total=chunks * (length - 2))
        try:
            found = score(runners, ids, chunks, length, lambda n: progress.advance(task, n))
        except ValueError as error:
            raise typer.BadParameter(str(error), param_hint="--chunks") from error
    for runner in runners.values():
        runner.close()
    for name, value in found.perplexity.items():
        print(f"perplexity, {name} activations  {value:.4f}   ({found.tokens} tokens scored)")
    print(f"logit error of int8: mean {found.error_mean:.4f}, largest {found.error_max:.3f}")
    figures = {
        "perplexity": {name: round(value, 4) for name, value in found.perplexity.items()},
        "tokens": found.tokens,
        "logit_error_mean": round(found.error_mean, 5),
        "logit_error_max": round(found.error_max, 4),
    }
    _write(output, config, figures)


def _text(path: Path | None) -> str:
    if path is not None:
        return path.read_text()
    from pydoc_data.topics import topics

    return "\n\n".join(topics.values())


def _prepare(
    model: Path, backend: str, activations: str, graphs: str = "auto"
) -> tuple[EngineConfig, Tokenizer]:
    import msgspec

    from flatwake_service.cli import backends
    from flatwake_service.engine.config import EngineConfig
    from flatwake_service.text import load_tokenizer
    from flatwake_service.weights import open_checkpoint

    tokenizer = load_tokenizer(open_checkpoint(model))
    given = {
        "model": str(model),
        "backend": backends.choose()[0] if backend == "auto" else backend,
        "activations": activations,
        "graphs": graphs,
        "context_length": CONTEXT,
        "vocabulary": tokenizer.size,
        "look_ahead": "auto",
    }
    try:
        return msgspec.convert(given, EngineConfig), tokenizer
    except msgspec.ValidationError as error:
        raise typer.BadParameter(str(error)) from error


@contextmanager
def _runner(config: EngineConfig, tokenizer: Tokenizer) -> Iterator[tuple[RunnerLayer, Runner]]:
    from flatwake_service.bench.layers import RunnerLayer, prompt_ids
    from flatwake_service.engine.runner import open_runner

    runner = open_runner(config, lambda phase, done, total: None)
    layer = RunnerLayer(runner, prompt_ids(tokenizer))
    try:
        yield layer, runner
    finally:
        layer.close()


def _warn(rounds: int) -> None:
    print(f"measuring {rounds} rounds; keep the machine quiet", file=sys.stderr)


def _keyed(values: dict[int, float]) -> dict[str, float]:
    return {str(key): round(value, 4) for key, value in values.items()}


def _write(output: Path | None, config: EngineConfig, figures: dict[str, Any]) -> None:
    """The figures with where and when they were measured, in the repository's form."""
    if output is None:
        return
    from flatwake_service.cli import machine

    document = {**machine.provenance(), "model": Path(config.model).name, **figures}
    output.write_text(json.dumps(document, indent=2) + "\n")
