"""`flatwake crd` and `flatwake render`, as users run them."""

from pathlib import Path

import pytest
import yaml
from flatwake_operator import cli
from flatwake_operator.crd import NAME
from typer.testing import CliRunner

EXAMPLE = Path(__file__).parents[2] / "examples/smollm2.yaml"
RUN = CliRunner()


def test_crd_prints_what_kubectl_takes() -> None:
    said = RUN.invoke(cli.crd)
    assert said.exit_code == 0
    assert yaml.safe_load(said.stdout)["metadata"]["name"] == NAME


@pytest.mark.parametrize("backend", ["Cpu", "hip"])
def test_render_prints_all_objects_without_a_cluster(backend: str) -> None:
    said = RUN.invoke(cli.render, [str(EXAMPLE), "--backend", backend, "-n", "models"])
    assert said.exit_code == 0
    made = list(yaml.safe_load_all(said.stdout))
    assert {thing["metadata"]["namespace"] for thing in made} == {"models"}
    kinds = {thing["kind"] for thing in made}
    assert kinds >= {"Deployment", "Service", "ServiceAccount", "PodDisruptionBudget"}
    assert ("amd.com/gpu" in said.stdout) == (backend == "hip")


def test_render_says_what_is_wrong(tmp_path: Path) -> None:
    bad = tmp_path / "bad.yaml"
    bad.write_text(EXAMPLE.read_text().replace("contextLength", "contextLenght"))
    said = RUN.invoke(cli.render, [str(bad)])
    assert said.exit_code == 2
    assert "did you mean contextLength?" in said.stderr
    said = RUN.invoke(cli.render, [str(EXAMPLE), "--backend", "gpu"])
    assert said.exit_code == 2
    assert "write Hip or Cpu" in said.stderr
