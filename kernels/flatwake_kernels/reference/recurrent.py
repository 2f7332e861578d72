"""Ops that keep state in slots: the causal convolution and the gated delta rule.

Both forms of the delta rule follow Gated DeltaNet (Yang, Kautz, Hatamizadeh, 2024), as in
transformers' `qwen3_5`.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from flatwake_kernels.reference.activation import sigmoid, silu, softplus
from flatwake_kernels.reference.call import Call

PIECE = 64
"""Positions that the chunked form takes at once."""


def _states(call: Call) -> Iterator[tuple[range, np.ndarray]]:
    """(rows, a copy of the state in slot_in) of each sequence that has rows."""
    state, slot_in = call.array("state"), call.array("slot_in")
    for sequence, rows in call.row_ranges():
        slot = int(slot_in[sequence])
        yield rows, state[slot if 0 <= slot < len(state) else 0].copy()


def _keep(call: Call, row: int, value: np.ndarray) -> None:
    """Into the row's slot_out, unless that is padding's."""
    state, slot = call.array("state"), int(call.array("slot_out")[row])
    if 0 < slot < len(state):
        state[slot] = value


def _convolve(call: Call, every_row: bool) -> None:
    offset, channels = call.size("offset"), call.size("channels")
    weight = call.array("weight")
    for rows, history in _states(call):
        for row in rows:
            x = call.floats("x", slice(row, row + 1))[0, offset : offset + channels]
            window = np.concatenate([history, x[:, None]], axis=1)
            total = np.zeros(channels, np.float32)
            for tap in range(call.size("taps")):
                total += window[:, tap] * weight[:, tap]
            call.store("y", silu(total), row)
            history = window[:, 1:]
            if every_row or row == rows[-1]:
                _keep(call, row, history)


def conv_step(call: Call) -> None:
    _convolve(call, every_row=True)


def conv_chunk(call: Call) -> None:
    _convolve(call, every_row=False)


class _Rows:
    """q, k, v, beta and the log decay g of some rows, heads first: `[v_heads, rows, …]`."""

    def __init__(self, call: Call, rows: range) -> None:
        k_heads, v_heads = call.size("k_heads"), call.size("v_heads")
        key_dim, value_dim = call.size("key_dim"), call.size("value_dim")
        part = slice(rows.start, rows.stop)
        qkv = call.floats("qkv", part)
        q, k, v = np.split(qkv, [k_heads * key_dim, 2 * k_heads * key_dim], axis=1)
        heads = np.arange(v_heads)
        key_of = heads % k_heads if call.size("head_map") else heads // (v_heads // k_heads)
        eps = call.number("eps")
        self.q = _unit(q.reshape(len(rows), k_heads, key_dim), eps)[:, key_of].swapaxes(0, 1)
        self.q = self.q / np.float32(np.sqrt(key_dim))
        self.k = _unit(k.reshape(len(rows), k_heads, key_dim), eps)[:, key_of].swapaxes(0, 1)
        self.v = v.reshape(len(rows), v_heads, value_dim).swapaxes(0, 1)
        ab = call.floats("ab", part)
        a_at, b_at = call.size("a_offset"), call.size("b_offset")
        step = softplus(ab[:, a_at : a_at + v_heads] + call.array("dt_bias"))
        self.g = (call.array("negative_a") * step).T
        self.beta = sigmoid(ab[:, b_at : b_at + v_heads]).T


def _unit(x: np.ndarray, eps: float) -> np.ndarray:
    """x over its L2 norm along the last axis."""
    square = np.sum(x * x, axis=-1, keepdims=True, dtype=np.float32)
    unit: np.ndarray = x / np.sqrt(square + np.float32(eps))
    return unit


def gdn_step(call: Call) -> None:
    """S ← e^g S; d = beta (v - Sᵀk); S ← S + k dᵀ; y = Sᵀq."""
    for rows, state in _states(call):
        part = _Rows(call, rows)
        for i, row in enumerate(rows):
            q, k = part.q[:, i, :, None], part.k[:, i, :, None]
            state = state * np.exp(part.g[:, i])[:, None, None]
            seen = np.sum(state * k, axis=1)
            delta = part.beta[:, i, None] * (part.v[:, i] - seen)
            state = state + k * delta[:, None, :]
            call.store("y", np.sum(state * q, axis=1), row)
            _keep(call, row, state)


def gdn_chunk(call: Call) -> None:
    """gdn_step in its chunked form: what a piece adds to the state is solved for at once."""
    for rows, state in _states(call):
        for start in range(rows.start, rows.stop, PIECE):
            piece = range(start, min(start + PIECE, rows.stop))
            y, state = _piece(_Rows(call, piece), state)
            call.store("y", y.swapaxes(0, 1), slice(piece.start, piece.stop))
        if rows:
            _keep(call, rows[-1], state)


def _piece(rows: _Rows, state: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Outputs `[v_heads, C, value_dim]` and the new state, of C rows and the state before them.

    With G the running sum of g and D_ij = exp(G_i - G_j) for i ≥ j, else 0: the deltas V' solve
    (I + strict_lower(beta K Kᵀ ⊙ D)) V' = beta (V - e^G K S).
    """
    q, k, v, beta = rows.q, rows.k, rows.v, rows.beta[..., None]
    total = np.cumsum(rows.g, axis=-1, dtype=np.float32)
    count = total.shape[-1]
    lower = np.tril(np.ones((count, count), bool))
    difference = np.where(lower, total[:, :, None] - total[:, None, :], -np.inf)
    decay = np.exp(difference).astype(np.float32)
    grown = np.exp(total)[..., None]
    mixing = np.tril((beta * k) @ k.swapaxes(1, 2) * decay, -1)
    identity = np.eye(count, dtype=np.float32)
    deltas = np.linalg.solve(identity + mixing, beta * (v - grown * (k @ state)))
    y = (q * grown) @ state + (q @ k.swapaxes(1, 2) * decay) @ deltas
    last = total[:, -1:, None]
    kept = k * np.exp(last - total[..., None])
    return y, np.exp(last) * state + kept.swapaxes(1, 2) @ deltas


def slot_copy(call: Call) -> None:
    state = call.array("state")
    for source, target in zip(call.array("source"), call.array("target"), strict=True):
        if 0 < target < len(state) and 0 <= source < len(state):
            state[target] = state[source]


def slot_zero(call: Call) -> None:
    state = call.array("state")
    for target in call.array("target"):
        if 0 < target < len(state):
            state[target] = 0
