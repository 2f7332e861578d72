"""Faults planted in transformers' Qwen3.5: what share of a golden's tokens turns when a layer is
left out, or an op is wrong as a kernel's is wrong: a state not carried, a neighbour's head.

A golden that few of them turn would let our own fault of that kind pass.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

import torch
from transformers.models.qwen3_5 import modeling_qwen3_5 as qwen

Undo = Callable[[], None]
HEADS = (1, 2)
"""Those that trade places."""


def skipped(layer: Any) -> Undo:
    """The residual passes by unchanged."""
    return layer.register_forward_hook(lambda _, taken, __: taken[0]).remove  # type: ignore[no-any-return]


def changed(parameter: Any, change: Callable[[Any], Any]) -> Undo:
    old = parameter.data
    parameter.data = change(old.clone())
    return lambda: setattr(parameter, "data", old)


def swapped(size: int, along: int) -> Callable[[Any], Any]:
    """Two heads of `size` trade places along a dimension."""

    def change(weight: Any) -> Any:
        first, second = (torch.arange(size) + head * size for head in HEADS)
        order = torch.arange(weight.shape[along])
        order[first], order[second] = second, first
        return weight.index_select(along, order)

    return change


def without_first_tap(weight: Any) -> Any:
    weight[..., 0] = 0
    return weight


def multiplied(module: Any, factor: float) -> Undo:
    return module.register_forward_hook(lambda _, __, given: given * factor).remove  # type: ignore[no-any-return]


DELTA: dict[str, Callable[[Any], Undo]] = {
    "convolution: the oldest tap lost": lambda m: changed(m.conv1d.weight, without_first_tap),
    "convolution: taps in reverse": lambda m: changed(m.conv1d.weight, lambda w: w.flip(-1)),
    "delta net: two heads' values swapped": lambda m: changed(m.out_proj.weight, swapped(128, 1)),
    "delta net: beta of the next head": lambda m: changed(
        m.in_proj_b.weight, lambda w: w.roll(1, 0)
    ),
    "delta net: decay of the next head": lambda m: changed(m.A_log, lambda a: a.roll(1, 0)),
    "delta net: decay without its bias": lambda m: changed(m.dt_bias, lambda b: 0 * b),
    "delta net: z gates of two heads swapped": lambda m: changed(
        m.in_proj_z.weight, swapped(128, 0)
    ),
    "delta net: its norm's weight lost": lambda m: changed(m.norm.weight, lambda w: 0 * w + 1),
}
ATTENTION: dict[str, Callable[[Any], Undo]] = {
    "attention: two query heads swapped": lambda m: changed(m.o_proj.weight, swapped(256, 1)),
    "attention: key heads swapped": lambda m: changed(m.k_proj.weight, lambda w: w.roll(256, 0)),
    "attention: queries' norm weight lost": lambda m: changed(m.q_norm.weight, lambda w: 0 * w),
    "attention: scores twice as large": lambda m: multiplied(m.q_norm, 2),
}
NORMS: dict[str, Callable[[Any], Undo]] = {
    "norms of layers: the weight lost": lambda m: changed(
        m.input_layernorm.weight, lambda w: 0 * w
    ),
}
MLP: dict[str, Callable[[Any], Undo]] = {
    "MLP: gate and up exchanged": lambda m: exchanged(m.gate_proj.weight, m.up_proj.weight),
}


def exchanged(one: Any, other: Any) -> Undo:
    def exchange() -> None:
        one.data, other.data = other.data, one.data

    exchange()
    return exchange


def rope_ahead(ahead: int) -> Callable[..., Any]:
    """Queries turned as if they stood `ahead` positions further."""
    turn = qwen.apply_rotary_pos_emb

    def turned(q: Any, k: Any, cos: Any, sin: Any, unsqueeze_dim: int = 1) -> Any:
        _, keys = turn(q, k, cos, sin, unsqueeze_dim)
        queries, _ = turn(q, k, cos.roll(-ahead, 1), sin.roll(-ahead, 1), unsqueeze_dim)
        return queries, keys

    return turned


def cut(op: str, along: int, last: int) -> Callable[..., Any]:
    """An op that begins anew `last` positions before the end: its state isn't carried there."""
    whole = getattr(qwen, op)

    def begun_anew(*tensors: Any, **options: Any) -> Any:
        def part(value: Any, start: int, length: int) -> Any:
            cuttable = isinstance(value, torch.Tensor) and value.dim() > 2
            return value.narrow(along, start, length) if cuttable else value

        count = tensors[0].shape[along]
        found = []
        for start, length in ((0, count - last), (count - last, last)):
            given = {k: part(v, start, length) for k, v in options.items()}
            found.append(whole(*(part(t, start, length) for t in tensors), **given))
        if isinstance(found[0], tuple):
            return torch.cat([f[0] for f in found], along), found[1][1]
        return torch.cat(found, along)

    return begun_anew


@contextmanager
def planted(plants: Sequence[Callable[[], Undo]]) -> Iterator[None]:
    with ExitStack() as stack:
        for plant in plants:
            stack.callback(plant())
        yield


def faults(oracle: Any, decoded: int) -> Iterator[tuple[str, Any]]:
    """Names, and contexts in which the oracle is wrong; `decoded`: a sequence's last positions."""
    layers = list(oracle.model.layers)
    delta = [layer.linear_attn for layer in layers if hasattr(layer, "linear_attn")]
    attention = [layer.self_attn for layer in layers if hasattr(layer, "self_attn")]
    mlps = [layer.mlp for layer in layers]
    for table, modules in ((DELTA, delta), (ATTENTION, attention), (MLP, mlps), (NORMS, layers)):
        for name, plant in table.items():
            middle = modules[len(modules) // 2]
            yield name, planted([lambda m=m, plant=plant: plant(m) for m in modules])
            yield f"{name}, in one layer", planted([lambda m=middle, plant=plant: plant(m)])
    for name, what, wrong in (
        ("attention: queries a position ahead", "apply_rotary_pos_emb", rope_ahead(1)),
        ("attention: rope left out", "apply_rotary_pos_emb", lambda q, k, *_: (q, k)),
        (
            "delta net: state not carried from the prompt",
            "torch_chunk_gated_delta_rule",
            cut("torch_chunk_gated_delta_rule", 1, decoded),
        ),
        (
            "convolution: inputs not carried from the prompt",
            "causal_conv1d_fn",
            cut("causal_conv1d_fn", 2, decoded),
        ),
    ):
        yield name, patch.object(qwen, what, wrong)
    for number, layer in enumerate(layers):
        yield f"layer {number} left out", planted([lambda layer=layer: skipped(layer)])
