"""The suite's short form against SmolLM2, as `make load-short` runs it: fetched, served, judged."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from fake_servers import free_port
from flatwake_loadtest.menu import KINDS
from test_run import failed, load

SHORT = Path(__file__).parents[2] / "loadtest" / "short.yaml"


@pytest.mark.timeout(900)  # two minutes on an idle machine
@pytest.mark.usefixtures("smollm2")  # fetched before the clock runs
def test_the_short_form_holds_on_smollm2(tmp_path: Path) -> None:
    manifest = yaml.safe_load(SHORT.read_text())
    manifest["spec"]["endpoint"]["port"] = free_port()
    file = tmp_path / "short.yaml"
    file.write_text(yaml.safe_dump(manifest))
    # The engine is killed, too: the server that was started for the run is started again.
    code, report, said = load(
        str(file), "--short", "--waves", "all,kill", out=tmp_path, timeout=840
    )
    assert code == 0, (failed(report), said, (tmp_path / "server.log").read_text()[-3000:])
    assert {wave["kind"] for wave in report["waves"]} == {*KINDS, "kill"} - {"depth"}
    assert report["growing"] == []
