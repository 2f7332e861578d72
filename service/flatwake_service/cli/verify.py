"""`flatwake verify`: the exactness gate on the user's own checkpoint and prompts."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer

if TYPE_CHECKING:
    from flatwake_kernels.backends import BackendName

    from flatwake_service.engine.runner import Runner
    from flatwake_service.verify.replay import Heard
    from flatwake_service.verify.trace import Comparison, Trace

app = typer.Typer(
    help="Compare our greedy tokens and logits with transformers'.", rich_markup_mode="markdown"
)


@app.command()
def verify(
    model: Annotated[
        str, typer.Argument(help="A GGUF file, a Hugging Face folder, or a source to fetch.")
    ],
    prompts: Annotated[
        Path | None,
        typer.Option(
            exists=True, dir_okay=False, help="A prompt a line, instead of the twenty built in."
        ),
    ] = None,
    tokens: Annotated[int, typer.Option(min=1, help="Greedy tokens a prompt.")] = 64,
    backend: Annotated[str, typer.Option(help="The backend to verify.")] = "cpu",
    traces: Annotated[
        Path | None,
        typer.Option(
            exists=True,
            dir_okay=False,
            help="Compare with traces saved before; needs no torch.",
        ),
    ] = None,
    save: Annotated[Path | None, typer.Option(help="Save the oracle's traces.")] = None,
) -> None:
    """Compare greedy tokens and logits with transformers', position by position.

    The model runs with float activations beside transformers in float32 on the same (dequantised)
    weights: every token must be equal where the oracle's margin exceeds the largest logit error
    seen, which must be so at 80 % of the positions (50 % where the backend's activations are of 16
    bits). A quantised model then runs with int8 activations beside the reference's. Exits 1 when a
    token differs, or when too few positions count.
    """
    passed = _verify(_find(model), prompts, tokens, cast("BackendName", backend), traces, save)
    sys.exit(0 if passed else 1)


def _find(model: str) -> Path:
    from flatwake_service.weights.fetch import fetch

    return fetch(model).path if "://" in model else Path(model)


def _verify(
    model: Path,
    prompts: Path | None,
    tokens: int,
    backend: BackendName,
    traces: Path | None,
    save: Path | None,
) -> bool:
    from flatwake_service.verify import trace

    if traces:
        oracle, notes = trace.load(traces)
    else:
        oracle, notes = _ask_oracle(model, prompts, tokens)
    words = " ".join(f"{k} {v}" for k, v in notes.items())
    if save:
        trace.save(save, oracle, notes)
        print(f"Saved {len(oracle)} traces to {save}.")
    passed = _compare(f"float activations beside {words}", model, backend, "float", oracle)
    if not _quantised(model):
        return passed
    own = _reference_traces(model, [t.prompt for t in oracle], tokens)
    return _compare("int8 activations beside the reference's", model, backend, "int8", own) & passed


def _ask_oracle(
    model: Path, prompts: Path | None, tokens: int
) -> tuple[list[Trace], dict[str, str]]:
    from flatwake_service.text import load_tokenizer
    from flatwake_service.verify import oracle
    from flatwake_service.verify.prompts import PROMPTS
    from flatwake_service.weights import open_checkpoint

    notes = oracle.versions()
    tokenizer = load_tokenizer(open_checkpoint(model))
    lines = tuple(filter(None, prompts.read_text().splitlines())) if prompts else PROMPTS
    ids = [tokenizer.encode(text) for text in lines]
    reader = oracle.load_oracle(model)
    with _bar("transformers, float32", len(ids) * tokens) as heard:
        return oracle.trace_oracle(reader, ids, tokens, heard), notes


def _reference_traces(model: Path, ids: list[tuple[int, ...]], tokens: int) -> list[Trace]:
    from flatwake_service.verify.replay import generate

    runner = _open(model, "reference", "int8", max(map(len, ids)) + tokens)
    with _bar("reference, int8", len(ids) * tokens) as heard:
        return generate(runner, ids, tokens, heard)


def _compare(
    title: str, model: Path, backend: BackendName, activations: str, oracle: list[Trace]
) -> bool:
    from flatwake_kernels.dtype import Dtype

    from flatwake_service.verify import trace
    from flatwake_service.verify.replay import replay

    length = max(len(t.prompt) + len(t.tokens) for t in oracle)
    runner = _open(model, backend, activations, length)
    exact = runner.decoder.dtype is Dtype.F32 and activations == "float"
    least = trace.LEAST_SHARE if exact else trace.LEAST_SHARE_ROUNDED
    with _bar(f"{backend}, {activations}", sum(len(t.tokens) for t in oracle)) as heard:
        found = trace.compare(oracle, replay(runner, oracle, heard), least=least)
    runner.close()
    _report(title, found)
    return found.equal


def _report(title: str, found: Comparison) -> None:
    verdict = "equal" if found.equal else "NOT EQUAL"
    if not found.enough:
        verdict = "NOT EQUAL (too few positions count)"
    print(
        f"{verdict}: {title}\n"
        f"  largest logit difference {found.error:.2e}; {found.counted} of {found.positions} "
        f"positions ({found.share:.1%}, at least {found.least:.0%} must) have a larger margin and "
        f"count; {len(found.mismatches)} of them differ"
    )
    for prompt, position, theirs, ours in found.mismatches[:8]:
        print(f"  prompt {prompt}, token {position}: {theirs} there, {ours} here")


def _open(model: Path, backend: BackendName, activations: str, context: int) -> Runner:
    from flatwake_service.engine.config import EngineConfig
    from flatwake_service.engine.runner import open_runner

    config = EngineConfig(
        model=str(model), backend=backend, socket="", context_length=context,
        activations="int8" if activations == "int8" else "float",
    )  # fmt: skip
    return open_runner(config, lambda *_: None)


def _quantised(model: Path) -> bool:
    from flatwake_service.weights import open_checkpoint
    from flatwake_service.weights.formats import QUANTIZED

    return bool(open_checkpoint(model).weight_formats() & set(QUANTIZED))


@contextmanager
def _bar(title: str, total: int) -> Iterator[Heard]:
    from rich.progress import Progress

    with Progress(transient=True) as progress:
        task = progress.add_task(title, total=total)
        yield lambda count: progress.advance(task, count)
