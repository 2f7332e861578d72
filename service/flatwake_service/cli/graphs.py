"""`flatwake doctor --graphs`: whether the runtime here leaks with replays, and whether graphs pay.

Measured by `graph_leak`, a program without Python that replays small kernels through the C ABI:
what is lost there is the runtime's.
"""

from __future__ import annotations

import subprocess
from dataclasses import dataclass

from flatwake_kernels.backend import BackendUnavailable
from flatwake_kernels.library import find_library

from flatwake_service.cli.finding import Finding

NODES, REPLAYS = 300, 2000
LEAK = 0.5
"""Bytes a node and replay that are one: a page in one of the program's parts, of 150,000 kernels,
is 0.03."""
_TIMEOUT_S = 300
_OFF = 'set spec.engine.graphs to "Off" (flatwake serve --graphs off)'


@dataclass(frozen=True)
class Way:
    """How kernels were run: microseconds, and bytes lost, a kernel and run."""

    microseconds: float
    host_bytes: float
    device_bytes: float

    @property
    def leaks(self) -> bool:
        return max(self.host_bytes, self.device_bytes) >= LEAK

    @property
    def lost(self) -> str:
        host, device = self.host_bytes, self.device_bytes
        return f"{host:.2f} bytes of the host's memory, {device:.2f} of the device's"


def measure(backend: str, nodes: int = NODES, replays: int = REPLAYS) -> tuple[Way, Way]:
    """Kernels launched one by one, and the same ones as a graph.

    Raises:
        BackendUnavailable: the library or the program isn't there, or its device failed.
    """
    library = find_library(backend)
    program = library.with_name("graph_leak")
    if not program.is_file():
        raise BackendUnavailable(f"{program} isn't there: run `make build`")
    words = [str(program), str(library), str(nodes), str(replays)]
    try:
        done = subprocess.run(
            words, capture_output=True, text=True, check=False, timeout=_TIMEOUT_S
        )
    except subprocess.TimeoutExpired:
        raise BackendUnavailable(f"graph_leak wasn't ready after {_TIMEOUT_S} s") from None
    if done.returncode:
        said = done.stderr.strip() or f"it ended with {done.returncode}"
        raise BackendUnavailable(f"graph_leak: {said}")
    values = {name: float(value) for name, value in map(str.split, done.stdout.splitlines())}
    launches, graph = (
        Way(
            values[f"{way}_us_per_node"],
            values[f"{way}_host_bytes_per_node"],
            values[f"{way}_device_bytes_per_node"],
        )
        for way in ("launches", "graph")
    )
    return launches, graph


def examine(launches: Way, graph: Way) -> list[Finding]:
    """What that means for `engine.graphs`; touches nothing."""
    if launches.leaks:
        text = f"a launch without any graph loses {launches.lost}"
        memory = Finding("graph memory", False, text, "upgrade the runtime: no setting helps here")
    else:
        text = f"a kernel of a replay loses {graph.lost}"
        memory = Finding("graph memory", not graph.leaks, text, f"{_OFF}, or upgrade the runtime")
    pays = graph.microseconds < launches.microseconds
    text = (
        f"a kernel takes {graph.microseconds:.2f} µs in a graph, "
        f"{launches.microseconds:.2f} µs launched alone"
    )
    if pays and memory.ok:
        text += '; engine.graphs "On" pays here, Auto goes by the architecture'
    return [memory, Finding("graph speed", pays, text, _OFF)]
