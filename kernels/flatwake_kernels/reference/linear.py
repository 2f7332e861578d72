"""Linear layers, with float and with integer activations."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np

from flatwake_kernels.backend import Activations, Weight
from flatwake_kernels.reference.activation import silu
from flatwake_kernels.reference.call import Call
from flatwake_kernels.reference.quants import dequantise

ROW_TILE = 16
"""Rows that are multiplied at once, padded: BLAS sums alike only in matrices of one shape."""
ACTIVATION_BLOCK = 32
"""Columns that share an int8 activation's scale."""
SMALLEST_SCALED = np.float32(1e-30)
"""Blocks whose largest magnitude is below this are zero: 127 / max must not overflow."""


class Layer:
    """Segments of rows, each in its own format, widened to float32 at first use."""

    def __init__(self, views: Sequence[Weight], activations: Activations) -> None:
        self.segments = [Segment(v, activations == "int8" and v.dtype.quantised) for v in views]
        self.rows = sum(v.rows for v in views)
        self.columns = views[0].columns

    def lookup(self, ids: np.ndarray) -> np.ndarray:
        """Rows `ids` of the layer, float32."""
        values = np.empty((len(ids), self.columns), np.float32)
        start = 0
        for segment in self.segments:
            inside = (ids >= start) & (ids < start + segment.rows)
            values[inside] = segment.lookup(ids[inside] - start)
            start += segment.rows
        return values

    def apply(self, x: np.ndarray) -> np.ndarray:
        """x Wᵀ for float32 x `[rows, columns]`. A row's bits don't depend on the others."""
        tiles = -(-len(x) // ROW_TILE)
        padded = np.zeros((tiles * ROW_TILE, self.columns), np.float32)
        padded[: len(x)] = x
        rounded = round_to_int8(padded) if any(s.integer for s in self.segments) else padded
        y = np.empty((len(padded), self.rows), np.float32)
        start = 0
        for segment in self.segments:
            source = rounded if segment.integer else padded
            for tile in range(0, len(padded), ROW_TILE):
                part = slice(tile, tile + ROW_TILE)
                # The weights on the left: BLAS then packs the few rows, not all of the weights.
                turned = np.ascontiguousarray(source[part].T)
                y[part, start : start + segment.rows] = (segment.values @ turned).T
            start += segment.rows
        return y[: len(x)]


class Segment:
    """A view's rows. `integer` activations are rounded to int8 before they meet the weights."""

    def __init__(self, view: Weight, integer: bool) -> None:
        self.view = view
        self.rows = view.rows
        self.integer = integer

    def lookup(self, rows: np.ndarray) -> np.ndarray:
        """Some rows, without widening all of them."""
        view = self.view
        source = rows if view.permutation is None else view.permutation[rows]
        return dequantise(view.data[source], view.dtype, view.columns)

    @cached_property
    def values(self) -> np.ndarray:
        return self.lookup(np.arange(self.rows))


def round_to_int8(x: np.ndarray) -> np.ndarray:
    """The values that int8 activations stand for, float32.

    Of each 32 columns: q = round(x · (127 / max|x|)), half to even, and the value is
    q · (max|x| / 127). A backend multiplies the integers; the products and sums are the same.
    """
    integers, scales = quantise_int8(x)
    values: np.ndarray = integers.astype(np.float32) * scales[..., None]
    return values.reshape(x.shape)


def quantise_int8(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """int8 `[rows, blocks, 32]` and float32 scales `[rows, blocks]`."""
    blocks = x.reshape(len(x), x.shape[1] // ACTIVATION_BLOCK, ACTIVATION_BLOCK)
    largest = np.max(np.abs(blocks), axis=-1)
    largest = np.where(largest < SMALLEST_SCALED, np.float32(0), largest)
    inverse = np.divide(np.float32(127), largest, out=np.zeros_like(largest), where=largest != 0)
    integers = np.rint(blocks * inverse[..., None]).astype(np.int8)
    return integers, largest / np.float32(127)


def layer_of(call: Call, name: str) -> Layer:
    """The layer that the reference backend prepared for parameter `name`."""
    layer = call.linear(name).owner
    assert isinstance(layer, Layer), "the handle is another backend's"
    return layer


def linear(call: Call) -> None:
    live = call.live
    y = layer_of(call, "weight").apply(call.floats("x", live))
    if call.has("bias"):
        y += call.array("bias")
    if call.has("residual"):
        y += call.floats("residual", live)
    call.store("y", y, live)


def gate_up_silu(call: Call) -> None:
    live = call.live
    both = layer_of(call, "weight").apply(call.floats("x", live))
    outputs = call.size("outputs")
    call.store("y", silu(both[:, :outputs]) * both[:, outputs:], live)
