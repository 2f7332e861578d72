"""A launch's arguments as its kernel finds them in memory."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Sequence
from typing import Any

import numpy as np
from code_object import Kernel, Memory

Grid = tuple[int, int, int]


def kernarg_segment(
    k: Kernel, args: Sequence[Any], grid: Grid, block: Grid, dynamic_lds: int
) -> tuple[Memory, list[tuple[np.ndarray, Memory]]]:
    """The kernarg segment, and (array, memory) for each array to copy back.

    Raises:
        ValueError: other arguments than the kernel's.
    """
    m: dict[str, Any] = k.meta
    out: list[tuple[np.ndarray, Memory]] = []
    segment = Memory(max(m[".kernarg_segment_size"], 8))
    raw = bytearray(segment.size)
    hidden = {f"hidden_block_count_{c}": n for c, n in zip("xyz", grid, strict=True)}
    hidden |= {f"hidden_group_size_{c}": n for c, n in zip("xyz", block, strict=True)}
    hidden |= {"hidden_grid_dims": 3, "hidden_dynamic_lds_size": dynamic_lds}
    left = list(args)
    for arg in m.get(".args", []):
        kind, offset, size = arg[".value_kind"], arg[".offset"], arg[".size"]
        if kind.startswith("hidden_"):
            value = int(hidden.get(kind, 0)).to_bytes(size, "little")
        elif not left:
            raise ValueError(f"{k.name}: too few arguments")
        else:
            value = _bytes(k, left.pop(0), size, out)
        if len(value) != size:
            raise ValueError(
                f"{k.name}: argument at offset {offset} takes {size} bytes, not {len(value)}"
            )
        raw[offset : offset + size] = value
    if left:
        raise ValueError(f"{k.name}: {len(left)} arguments too many")
    ctypes.memmove(segment.address, bytes(raw), len(raw))
    return segment, out


def _bytes(k: Kernel, v: Any, size: int, out: list[tuple[np.ndarray, Memory]]) -> bytes:
    """An argument's bytes. An array is copied to memory of its own, which is added to `out`."""
    if isinstance(v, np.ndarray):
        if not v.flags.c_contiguous:
            raise ValueError(f"{k.name}: array arguments must be C-contiguous")
        # One array given twice is one buffer.
        mem = next((had for a, had in out if a is v), None)
        if mem is None:
            mem = Memory(v.nbytes)
            ctypes.memmove(mem.address, v.ctypes.data, v.nbytes)
            out.append((v, mem))
        return struct.pack("<Q", mem.address)
    if isinstance(v, Memory):
        return struct.pack("<Q", v.address)
    if isinstance(v, np.generic):
        return v.tobytes()
    if isinstance(v, (bytes, bytearray)):
        return bytes(v)  # a struct passed by value
    if isinstance(v, float):
        return struct.pack("<f" if size == 4 else "<d", v)
    return int(v).to_bytes(size, "little", signed=int(v) < 0)


def dispatch_packet(k: Kernel, grid: Grid, block: Grid, lds: int, kernarg: Memory) -> Memory:
    """What a kernel may read of its own launch. `grid` counts blocks, the packet work-items."""
    packet = Memory(64)
    items = (g * b for g, b in zip(grid, block, strict=True))
    private = k.meta[".private_segment_fixed_size"]
    words = struct.pack(
        "<HHHHHHIIIIIQQQQ", 2, 3, *block, 0, *items, private, lds, 0, kernarg.address, 0, 0
    )
    ctypes.memmove(packet.address, words, 64)
    return packet
