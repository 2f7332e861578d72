"""Graphs by policy, architecture and mode."""

from __future__ import annotations

import pytest
from flatwake_service.engine.graphs import wants_graph


@pytest.mark.parametrize("rows", [1, 2, 8])
def test_a_cpu_captures_nothing(rows: int) -> None:
    assert not wants_graph("on", "cpu", "avx512", rows)


@pytest.mark.parametrize("architecture", ["gfx906", "gfx906:sramecc+:xnack-"])
def test_auto_leaves_a_single_sequence_alone_on_gfx906(architecture: str) -> None:
    assert not wants_graph("auto", "hip", architecture, 1)
    assert wants_graph("auto", "hip", architecture, 2)
    assert wants_graph("on", "hip", architecture, 1)


@pytest.mark.parametrize("architecture", ["gfx1100", "gfx942", "sm_90"])
def test_auto_captures_elsewhere(architecture: str) -> None:
    assert wants_graph("auto", "hip", architecture, 1)
    assert not wants_graph("off", "hip", architecture, 8)
