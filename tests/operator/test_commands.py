"""`flatwake crd` and `flatwake render`, as users run them."""

from pathlib import Path

import pytest
import yaml
from flatwake_operator import cli
from flatwake_operator.crd import NAME
from typer.testing import CliRunner

EXAMPLES = Path(__file__).parents[2] / "examples"
EXAMPLE = EXAMPLES / "smollm2.yaml"
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


@pytest.mark.parametrize("example", sorted(EXAMPLES.glob("*.yaml")), ids=lambda path: path.stem)
def test_every_example_is_rendered_with_an_image(example: Path) -> None:
    said = RUN.invoke(cli.render, [str(example), "--image", "registry.example.com/served:1"])
    (deployment,) = [
        thing for thing in yaml.safe_load_all(said.stdout) if thing["kind"] == "Deployment"
    ]
    pod = deployment["spec"]["template"]["spec"]
    images = [container["image"] for container in pod["containers"] + pod["initContainers"]]
    assert images == ["registry.example.com/served:1"] * 2


def test_render_reads_what_is_piped_and_leaves_out_what_a_cluster_lacks() -> None:
    words = ["-", "--without", "PodMonitor", "--without", "InferencePool", "--image", "served:1"]
    said = RUN.invoke(cli.render, words, input=EXAMPLE.read_text())
    assert said.exit_code == 0, said.stderr
    assert said.stderr == ""
    whole = RUN.invoke(cli.render, [str(EXAMPLE), "--image", "served:1"])
    made, every = (
        {thing["kind"] for thing in yaml.safe_load_all(text.stdout)} for text in (said, whole)
    )
    assert every - made == {"PodMonitor"}


def test_render_says_that_no_image_is_named() -> None:
    said = RUN.invoke(cli.render, [str(EXAMPLE)])
    assert said.exit_code == 0
    assert "pass --image" in said.stderr


def test_render_says_what_is_wrong(tmp_path: Path) -> None:
    bad = tmp_path / "bad.yaml"
    bad.write_text(EXAMPLE.read_text().replace("contextLength", "contextLenght"))
    said = RUN.invoke(cli.render, [str(bad)])
    assert said.exit_code == 2
    assert "did you mean contextLength?" in said.stderr
    for senseless in ("gpu", "auto"):
        said = RUN.invoke(cli.render, [str(EXAMPLE), "--backend", senseless])
        assert said.exit_code == 2
        assert "write Hip or Cpu" in said.stderr
    said = RUN.invoke(cli.render, [str(EXAMPLE), "--without", "PodMonitors"])
    assert said.exit_code == 2
    assert "--without PodMonitors: it is none of ServiceAccount, " in said.stderr
