"""Sums over ranks. The reference is one rank."""

from __future__ import annotations

from flatwake_kernels.reference.call import Call


def all_reduce(call: Call) -> None:
    """A sum of one."""
    assert call.has("x")
