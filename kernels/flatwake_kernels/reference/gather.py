"""Rows by their number: embedding and gather_rows."""

from __future__ import annotations

import numpy as np

from flatwake_kernels.reference.call import Call
from flatwake_kernels.reference.linear import layer_of


def embedding(call: Call) -> None:
    live = call.live
    ids = call.array("row_id")[live]
    layer = layer_of(call, "table")
    known = (ids >= 0) & (ids < layer.rows)
    values = layer.lookup(np.where(known, ids, 0))
    call.store("y", np.where(known[:, None], values, np.float32(0)), live)


def gather_rows(call: Call) -> None:
    x, y, index = call.array("x"), call.array("y"), call.array("index")
    known = (index >= 0) & (index < len(x))
    y[~known] = 0
    y[known] = x[index[known]]
