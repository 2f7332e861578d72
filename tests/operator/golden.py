"""Renders the inputs in data/render; run as a script it renews the outputs."""

from pathlib import Path

import yaml
from flatwake_operator import render
from flatwake_operator.settings import Context, Settings
from flatwake_service.manifest import Backend, parse

FOLDER = Path(__file__).parent / "data" / "render"
CASES = sorted(FOLDER.glob("*.in.yaml"))
SETTINGS = Settings(
    images={Backend.HIP: "localhost/flatwake-hip:1", Backend.CPU: "localhost/flatwake-cpu:1"}
)


def rendered(case: Path) -> str:
    server = parse(yaml.safe_load(case.read_text()))
    context = Context(server, SETTINGS, render.decide(server, SETTINGS, Backend.HIP))
    return render.text(render.children(context, {}))


if __name__ == "__main__":
    for case in CASES:
        case.with_name(case.name.replace(".in.", ".out.")).write_text(rendered(case))
