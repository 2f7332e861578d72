"""Which plans become device graphs: the policy behind `graphs: Auto | On | Off`.

A replayed graph saves the launches of a step, which cost most where steps are short. On gfx906
published measurements found replay slower, and leaking, for a single sequence, and 38 % faster for
several; elsewhere it gains at every size. `flatwake serve --graphs on|off` overrides.
"""

from __future__ import annotations

from typing import Literal

Policy = Literal["auto", "on", "off"]

GRAPH_BACKENDS = ("hip", "cuda")
"""Elsewhere a plan is one native call already."""
_SLOW_ALONE = ("gfx906",)


def wants_graph(policy: Policy, backend: str, architecture: str, rows: int) -> bool:
    """Whether a decode plan of `rows` rows (or a chunk of as many) is to be captured."""
    if backend not in GRAPH_BACKENDS or policy == "off":
        return False
    if policy == "on":
        return True
    return not (rows == 1 and architecture.split(":")[0] in _SLOW_ALONE)
