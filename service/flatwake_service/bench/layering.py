"""`flatwake bench layers`: its layers built, measured in turn, and what came out."""

from __future__ import annotations

import math
import os
import statistics
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import msgspec

from flatwake_service.bench import stand_in as paced
from flatwake_service.bench.cores import Cores
from flatwake_service.bench.layers import (
    EngineLayer,
    Layer,
    PaceLayer,
    RunnerLayer,
    ServerLayer,
    Speed,
    prompt_ids,
    serve_command,
)
from flatwake_service.engine.config import EngineConfig
from flatwake_service.engine.runner import open_runner
from flatwake_service.text import Tokenizer

Measured = Mapping[tuple[str, int], Speed]
"""One round: by layer and users."""


@contextmanager
def build(
    config: EngineConfig,
    tokenizer: Tokenizer,
    cores: Cores,
    *,
    stand_in: float | None,
    stamps: bool,
) -> Iterator[dict[str, Layer]]:
    """The layers, ready to be measured; `stand_in`: tokens/s of an engine that computes none."""
    prompt = prompt_ids(tokenizer)
    engine: Sequence[str] | None = None
    command, options = serve_command(config)
    with ExitStack() as stack:
        built: dict[str, Layer] = {}

        def add(name: str, layer: Layer) -> None:
            built[name] = layer
            stack.callback(layer.close)

        if stand_in is None:
            with cores.as_engine():
                runner = open_runner(config, lambda phase, done, total: None)
            add("A", RunnerLayer(runner, prompt, cores))
        else:
            os.environ[paced.RATE] = str(stand_in)
            engine = paced.COMMAND
            command, options = list(engine), {"--model": config.model}
            config = msgspec.structs.replace(config, backend="reference")
            add("A", PaceLayer(stand_in))
        add("B", EngineLayer(config, prompt, tokenizer, cores, engine))
        add("C", ServerLayer(command, options, prompt, cores, stamps=stamps))
        yield built


def interleave(
    built: Mapping[str, Layer], users: Sequence[int], tokens: int, rounds: int
) -> Iterator[Measured]:
    """Each round measures every layer, each time beginning with another one."""
    names = list(built)
    for number in range(rounds):
        turn = number % len(names)
        order = names[turn:] + names[:turn]
        found = {}
        for count in users:
            for name in order:
                if sys.stderr.isatty():
                    print(
                        f"round {number + 1}: {name}, {count} users   ", end="\r", file=sys.stderr
                    )
                found[name, count] = built[name].measure(count, tokens)
        yield found


def figures(measured: Sequence[Measured], users: Sequence[int]) -> dict[str, Any]:
    """By users: medians of each layer, and what C loses of B's speed (`layer_cost_pct`) and of A's,
    round by round.
    """
    by = {name: {count: [m[name, count] for m in measured] for count in users} for name in "ABC"}

    def each(name: str, figure: Callable[[list[Speed]], Any]) -> dict[str, Any]:
        return {str(count): figure(speeds) for count, speeds in by[name].items()}

    def loss(below: str) -> dict[str, Any]:
        return {
            str(count): estimate(
                100 * (1 - high.decode / low.decode)
                for high, low in zip(by["C"][count], by[below][count], strict=True)
            )
            for count in users
        }

    out: dict[str, Any] = {f"{name}_tokens_per_second": each(name, _decode) for name in "ABC"}
    for name in "BC":
        speeds, alone = out[f"{name}_tokens_per_second"], out["A_tokens_per_second"]
        out[f"{name}_ratio"] = {key: round(speeds[key] / alone[key], 4) for key in speeds}
        out[f"{name}_processor_us_per_token"] = each(name, _processor)
    out |= {"layer_cost_pct": loss("B"), "serving_cost_pct": loss("A")}
    out["first_token_seconds"] = each("C", _first)
    if any(speed.delays for speeds in by["C"].values() for speed in speeds):
        out |= {"token_delay_ms": each("C", _delays), "message_delay_ms": each("B", _delays)}
    return out


def _decode(speeds: list[Speed]) -> float:
    return round(statistics.median(speed.decode for speed in speeds), 4)


def _first(speeds: list[Speed]) -> float:
    return round(statistics.median(speed.first or 0.0 for speed in speeds), 4)


def _processor(speeds: list[Speed]) -> float:
    return round(1e6 * statistics.median(speed.processor or 0.0 for speed in speeds), 1)


def _delays(speeds: list[Speed]) -> dict[str, float]:
    """Percentiles of all tokens."""
    ordered = sorted(delay for speed in speeds for delay in speed.delays)
    last = len(ordered) - 1
    return {
        f"p{share}": round(1000 * ordered[min(len(ordered) * share // 100, last)], 4)
        for share in (50, 90, 99)
    }


def table(found: Mapping[str, Any]) -> list[str]:
    """The figures for the terminal."""
    lines = ["users   A runner   B messages   C sockets     B/A     C/A   first token   C/B costs"]
    for users in found["A_tokens_per_second"]:
        a, b, c = (found[f"{name}_tokens_per_second"][users] for name in "ABC")
        ratios = f"{found['B_ratio'][users]:7.3f} {found['C_ratio'][users]:7.3f}"
        first, cost = found["first_token_seconds"][users], found["layer_cost_pct"][users]
        low, high = cost["interval"]
        lines.append(
            f"{users:>5} {a:10.1f} {b:12.1f} {c:11.1f} {ratios} {first:11.3f} s"
            f"   {cost['value']:.1f} % ({low:.1f} to {high:.1f})"
        )
        if "token_delay_ms" in found:
            delay = found["token_delay_ms"][users]
            lines.append(f"{'':5} a token arrives {delay['p50']:.2f} ms after it was read (median)")
    return lines


def estimate(values: Iterable[float]) -> dict[str, Any]:
    """The median, and the interval that holds it with 95 % by the values' order alone (a sign
    test); of fewer than six values: from the least to the largest, which says less.
    """
    ordered = sorted(values)
    count, below, rank = len(ordered), 0.0, 0
    for rank in range(count // 2 + 1):
        below += math.comb(count, rank) / 2**count
        if below > 0.025:
            break
    outer = max(rank - 1, 0)
    low, high = ordered[outer], ordered[count - 1 - outer]
    return {
        "value": round(statistics.median(ordered), 3),
        "interval": [round(low, 3), round(high, 3)],
    }
