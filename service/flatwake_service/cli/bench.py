"""`flatwake bench`: speed on this machine, and how near it is to what the memory allows."""

from __future__ import annotations

import json
import os
import statistics
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from flatwake_service.cli.layers import RunnerLayer
    from flatwake_service.engine.config import EngineConfig
    from flatwake_service.text import Tokenizer

app = typer.Typer(add_completion=False, no_args_is_help=True)

USERS = (1, 4, 8)
CONTEXT = 1024
PROMPT = 512

ModelOption = Annotated[Path, typer.Argument(help="A GGUF file or a Hugging Face folder.")]
BackendOption = Annotated[str, typer.Option(help="auto, hip, cpu, reference, emulation or cuda.")]
ActivationsOption = Annotated[str, typer.Option(help="auto, float or int8.")]
TokensOption = Annotated[int, typer.Option(min=8, help="Tokens a user.")]
RoundsOption = Annotated[int, typer.Option(min=1, help="Measurements; the median counts.")]
GraphsOption = Annotated[str, typer.Option(help="Replay steps as graphs: auto, on or off.")]
OutputOption = Annotated[Path | None, typer.Option(help="Write the figures as JSON, too.")]


@app.command()
def speed(
    model: ModelOption,
    backend: BackendOption = "auto",
    activations: ActivationsOption = "auto",
    tokens: TokensOption = 64,
    rounds: RoundsOption = 3,
    output: OutputOption = None,
) -> None:
    """Decode and prefill speed of the runner alone, and the share of the memory bandwidth.

    The share is of the bandwidth that a copy reaches on the same device: the bytes of weights, KV
    and state that the steps had to move, by the time that they took.
    """
    config, tokenizer = _prepare(model, backend, activations)
    with _runner(config, tokenizer) as (layer, bandwidth):
        _warn(rounds)
        length = min(PROMPT, layer.context - 1)
        measured = [{users: layer.measure(users, tokens) for users in USERS} for _ in range(rounds)]
        prefill = statistics.median(layer.prefill_speed(length) for _ in range(rounds))
    decode = {u: statistics.median(m[u].decode for m in measured) for u in USERS}
    share = {
        u: statistics.median((m[u].bytes_a_second or 0.0) / bandwidth for m in measured)
        for u in USERS
    }
    print(f"{config.backend}: a copy moves {bandwidth / 1e9:.1f} GB/s")
    print(f"prefill of {length} tokens   {prefill:8.1f} tok/s")
    for users in USERS:
        share_text = f"{share[users]:6.1%} of the bandwidth"
        print(f"decode, {users} users        {decode[users]:8.1f} tok/s   {share_text}")
    _write(
        output,
        config,
        {
            "bandwidth_bytes": bandwidth,
            "prefill_tokens_per_second": prefill,
            "decode_tokens_per_second": _keyed(decode),
            "bandwidth_share": _keyed(share),
        },
    )


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
    from flatwake_service.cli import layering
    from flatwake_service.cli.cores import ANYWHERE, Cores

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
    }
    try:
        return msgspec.convert(given, EngineConfig), tokenizer
    except msgspec.ValidationError as error:
        raise typer.BadParameter(str(error)) from error


@contextmanager
def _runner(config: EngineConfig, tokenizer: Tokenizer) -> Iterator[tuple[RunnerLayer, float]]:
    from flatwake_service.cli.layers import RunnerLayer, prompt_ids
    from flatwake_service.engine.runner import open_runner

    runner = open_runner(config, lambda phase, done, total: None)
    layer = RunnerLayer(runner, prompt_ids(tokenizer))
    try:
        yield layer, runner.bandwidth_bytes
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
