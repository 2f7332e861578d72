"""The chart renders, refuses what it can't use, and asks for no right too many."""

import functools
import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from helm import CHART, helm, render

ROOT = CHART.parents[1]
OPERATOR_METRICS = "operator/flatwake_operator/probes.py"
IMAGES = ("images.operator=localhost/operator:1", "images.cpu=localhost/cpu:1")


@functools.cache
def objects(*values: str) -> tuple[dict[str, Any], ...]:
    return tuple(d for d in yaml.safe_load_all(render(*IMAGES, *values)) if d)


def of(kind: str, *values: str) -> list[dict[str, Any]]:
    return [thing for thing in objects(*values) if thing["kind"] == kind]


def rules(*values: str) -> list[dict[str, Any]]:
    return [
        rule
        for kind in ("ClusterRole", "Role")
        for role in of(kind, *values)
        for rule in role["rules"]
    ]


def test_it_lints() -> None:
    said = helm("lint", "--strict", str(CHART), *(f"--set={value}" for value in IMAGES))
    assert said.returncode == 0, said.stdout


def test_without_an_image_it_says_which() -> None:
    said = helm("template", "flatwake", str(CHART))
    assert said.returncode != 0
    assert "/images/operator" in said.stderr


@pytest.mark.parametrize(
    "value", ["images.gpu=x", "operator.replica=1", "operator.logLevel=loud", "renderGroups={}"]
)
def test_a_misspelt_or_senseless_value_is_refused(value: str) -> None:
    said = helm("template", "flatwake", str(CHART), *(f"--set={v}" for v in (*IMAGES, value)))
    assert said.returncode != 0, said.stdout[:500]


def test_no_right_on_secrets_and_no_wildcard() -> None:
    for rule in (*rules(), *rules("operator.watchNamespaces={a,b}")):
        assert "secrets" not in rule["resources"]
        for part in ("apiGroups", "resources", "verbs"):
            assert "*" not in rule[part]


def test_with_namespaces_the_cluster_role_holds_what_has_no_namespace() -> None:
    values = ("operator.watchNamespaces={a,b}", "operator.nodes=false")
    (cluster_role,) = of("ClusterRole", *values)
    assert [rule["resources"] for rule in cluster_role["rules"]] == [["customresourcedefinitions"]]
    assert {role["metadata"]["namespace"] for role in of("Role", *values)} == {"a", "b", "default"}


def test_the_crd_is_kept_unless_told_otherwise() -> None:
    (crd,) = of("CustomResourceDefinition")
    assert crd["metadata"]["annotations"]["helm.sh/resource-policy"] == "keep"
    (crd,) = of("CustomResourceDefinition", "crds.keep=false")
    assert "helm.sh/resource-policy" not in crd["metadata"]["annotations"]
    assert of("CustomResourceDefinition", "crds.install=false") == []


def test_the_operators_pods_are_hardened() -> None:
    (deployment,) = of("Deployment")
    spec = deployment["spec"]["template"]["spec"]
    assert spec["securityContext"]["runAsNonRoot"]
    (container,) = spec["containers"]
    assert container["securityContext"]["readOnlyRootFilesystem"]
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}


LOAD = ("images.load=localhost/load:1", "load.target=http://qwen:8000")


def test_the_load_suite_is_a_test_in_short_and_a_job_in_full() -> None:
    assert of("Job") == []
    (check,) = of("Job", *LOAD)
    assert check["metadata"]["annotations"]["helm.sh/hook"] == "test"
    found = of("Job", *LOAD, "load.job=true", "load.args={--waves=steady}", "load.claim=reports")
    job = {thing["metadata"]["name"]: thing for thing in found}["flatwake-load-1"]
    for found, words in ((check, ["--short"]), (job, ["--waves=steady"])):
        pod = found["spec"]["template"]["spec"]
        (container,) = pod["containers"]
        assert container["args"] == ["load", "http://qwen:8000", "--out", "/report", *words]
        assert container["securityContext"]["readOnlyRootFilesystem"]
        assert pod["securityContext"]["runAsNonRoot"]
        # What is measured must not be retried until it passes.
        assert (pod["restartPolicy"], found["spec"]["backoffLimit"]) == ("Never", 0)
    volumes = {v["name"]: v for v in job["spec"]["template"]["spec"]["volumes"]}
    assert volumes["report"]["persistentVolumeClaim"] == {"claimName": "reports"}


def test_a_load_target_without_the_suites_image_is_refused() -> None:
    said = helm("template", "flatwake", str(CHART), *(f"--set={v}" for v in (*IMAGES, LOAD[1])))
    assert said.returncode != 0
    assert "images.load" in said.stderr


def test_two_releases_share_no_cluster_wide_name_but_the_crd() -> None:
    def names(release: str) -> set[tuple[str, str]]:
        text = render(*IMAGES, "crds.install=false", release=release)
        return {
            (d["kind"], d["metadata"]["name"]) for d in yaml.safe_load_all(text) if d is not None
        }

    assert names("flatwake").isdisjoint(names("other"))


def test_every_value_is_used_and_described() -> None:
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    text = "".join(path.read_text() for path in (CHART / "templates").iterdir())
    lines = (CHART / "values.yaml").read_text().splitlines()
    for path in _paths(values):
        assert f".Values.{path}" in text, path
    for number, line in enumerate(lines):
        if re.match(r"^  [a-zA-Z]+:", line):
            before = [text.strip() for text in lines[max(0, number - 3) : number]]
            assert any(text.startswith("#") for text in before), line


def _paths(values: dict[str, Any], prefix: str = "") -> list[str]:
    found = []
    for key, value in values.items():
        path = f"{prefix}{key}"
        free = path in ("operator.resources", "dashboard.labels")
        if isinstance(value, dict) and value and not free:
            found += _paths(value, f"{path}.")
        else:
            found.append(path)
    return found


def test_the_schema_knows_every_value() -> None:
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    schema = json.loads((CHART / "values.schema.json").read_text())
    for path in _paths(values):
        node = schema
        for piece in path.split("."):
            assert piece in node["properties"], path
            node = node["properties"][piece]


def test_arguments_are_those_of_the_command(tmp_path: Path) -> None:
    import sys

    from flatwake_operator import cli

    (deployment,) = of("Deployment", "images.hip=x", "operator.watchNamespaces={a}")
    arguments = deployment["spec"]["template"]["spec"]["containers"][0]["args"]
    assert arguments[0] == "operator"
    help_text = subprocess.run(
        [sys.executable, "-c", "from flatwake_operator.cli import operator; operator()", "--help"],
        capture_output=True,
        text=True,
        check=True,
        env={"COLUMNS": "300", "TERM": "dumb", "NO_COLOR": "1", "PATH": ""},
    ).stdout
    assert cli.operator is not None
    for argument in arguments[1:]:
        assert argument.split("=")[0] in help_text, argument


def test_alerts_and_dashboard_speak_of_metrics_that_exist() -> None:
    """Names are compared with the design's list and with what the operator serves."""
    served = set(re.findall(r'"([a-z_]+)"', (ROOT / OPERATOR_METRICS).read_text()))
    known = {f"flatwake_operator_{name}" for name in served} | {"flatwake_operator_api_calls_total"}
    text = render(*IMAGES, "alerts.enabled=true", show="templates/alerts.yaml")
    text += render(*IMAGES, "dashboard.enabled=true", show="templates/dashboard.yaml")
    architecture = (ROOT / "docs/architecture.md").read_text()
    for name in set(re.findall(r"\bflatwake_[a-z_]+", text)):
        plain = name.removeprefix("flatwake_").removesuffix("_bucket")
        assert name in known or f"`{plain}" in architecture or f", `{plain}`" in architecture, name


def test_a_drain_of_the_only_node_is_not_held_up_by_the_operator() -> None:
    """Its absence stops no server, so it asks for no budget."""
    assert of("PodDisruptionBudget") == []
