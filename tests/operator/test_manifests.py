"""What the docs, the examples, the chart and `flatwake render` show is what API servers take."""

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from apiserver import ApiServer
from flatwake_operator import cli, kinds
from flatwake_operator.settings import Object
from lab import Lab
from testcluster import layout
from typer.testing import CliRunner

ROOT = Path(__file__).parents[2]
EXAMPLES = sorted((ROOT / "examples").glob("*.yaml"))
RENDERED = sorted((Path(__file__).parent / "data/render").glob("*.out.yaml"))
EVERYTHING = (
    "images.operator=localhost/operator:1", "images.hip=localhost/hip:1",
    "images.cpu=localhost/cpu:1", "images.load=localhost/load:1", "podMonitor.enabled=true",
    "alerts.enabled=true", "dashboard.enabled=true", "load.target=http://qwen:8000",
    "load.job=true",
)  # fmt: skip


def blocks() -> Iterator[tuple[str, str]]:
    """Where a manifest stands, and its text."""
    for path in EXAMPLES:
        yield path.name, path.read_text()
    for path in sorted((ROOT / "docs").glob("*.md")):
        for text in re.findall(r"```ya?ml\n(.*?)```", path.read_text(), re.DOTALL):
            yield path.name, text


SHOWN = [
    pytest.param(thing, id=f"{name}-{thing['kind']}-{thing['metadata']['name']}")
    for name, text in blocks()
    for thing in yaml.safe_load_all(text)
    if thing
]


def assert_accepted(api: ApiServer, thing: Object) -> None:
    """By a dry run, with every field known."""
    version, meta = thing["apiVersion"], thing["metadata"]
    root = f"/apis/{version}" if "/" in version else f"/api/{version}"
    _, served = api.call("GET", root)
    (found,) = [
        resource
        for resource in served["resources"]
        if resource["kind"] == thing["kind"] and "/" not in resource["name"]
    ]
    namespace = meta.get("namespace", "default")
    api.call("POST", "/api/v1/namespaces", {"metadata": {"name": namespace}})
    place = f"namespaces/{namespace}/" if found["namespaced"] else ""
    query = "?dryRun=All&fieldManager=test&force=true&fieldValidation=Strict"
    path = f"{root}/{place}{found['name']}/{meta['name']}{query}"
    status, answer = api.call("PATCH", path, thing, "application/apply-patch+yaml")
    assert status in (200, 201), f"{thing['kind']}: {answer['message']}"


@pytest.mark.parametrize("thing", SHOWN)
def test_a_manifest_that_is_shown_is_accepted(full_api: ApiServer, thing: Object) -> None:
    assert_accepted(full_api, thing)


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_what_is_rendered_is_accepted_without_an_operator(
    full_api: ApiServer, example: Path
) -> None:
    said = CliRunner().invoke(cli.render, [str(example)])
    assert said.exit_code == 0, said.output
    for thing in yaml.safe_load_all(said.stdout):
        assert_accepted(full_api, thing)


@pytest.mark.parametrize("golden", RENDERED, ids=lambda path: path.stem)
def test_golden_children_are_accepted(full_api: ApiServer, golden: Path) -> None:
    for thing in yaml.safe_load_all(golden.read_text()):
        assert_accepted(full_api, thing)


def test_all_of_the_chart_is_accepted(full_api: ApiServer) -> None:
    values = [f"--set={value}" for value in EVERYTHING]
    words = [layout.binaries() / "helm", "template", "flatwake", ROOT / "charts/flatwake", *values]
    said = subprocess.run(words, capture_output=True, text=True, check=True)
    things = [thing for thing in yaml.safe_load_all(said.stdout) if thing]
    assert {"PrometheusRule", "PodMonitor", "Job", "ConfigMap"} <= {t["kind"] for t in things}
    for thing in things:
        assert_accepted(full_api, thing)


def test_what_other_projects_serve_is_made_once_and_goes_when_it_is_no_longer_wanted(
    full_api: ApiServer,
) -> None:
    lab = Lab(full_api)
    lab.create(endpoint={"pickerRef": {"name": "picker"}})
    lab.settle()
    assert [pool["metadata"]["name"] for pool in lab.list(kinds.POOL)] == ["chat"]
    assert [monitor["metadata"]["name"] for monitor in lab.list(kinds.MONITOR)] == ["chat"]
    assert lab.condition("Accepted") == ("True", "Accepted")
    lab.edit(endpoint={"pickerRef": None})
    lab.settle()
    assert lab.list(kinds.POOL) == []
    lab.close()
