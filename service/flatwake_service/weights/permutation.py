"""The row order of q and k in GGUF files of the llama architecture.

Conversion interleaves the halves of each head, so that rotary embedding turns adjacent pairs:
row (head, i, half) of the file is row (head, half, i) of Hugging Face's tensor.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def rotary_rows(rows: int, heads: int) -> NDArray[np.int64]:
    """The file's row that holds each row of Hugging Face's order: `hf = file[rotary_rows(...)]`.

    A checkpoint read in the file's own order wants RoPE over adjacent pairs instead.
    """
    assert rows % (2 * heads) == 0, f"{rows} rows don't divide into {heads} heads of pairs"
    order = np.arange(rows, dtype=np.int64).reshape(heads, rows // heads // 2, 2)
    return order.swapaxes(1, 2).reshape(rows)
