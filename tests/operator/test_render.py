"""Golden pairs: an InferenceServer and all its children, as they are read in review.

`make generated` renews the outputs; the diff is read.
"""

from pathlib import Path
from typing import Any

import pytest
import yaml
from flatwake_operator.children import architectures, pod
from flatwake_operator.settings import Context, Decision, Settings
from flatwake_service.manifest import Backend, Strategy, parse
from golden import CASES, rendered


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name.removesuffix(".in.yaml"))
def test_children_are_as_committed(case: Path) -> None:
    golden = case.with_name(case.name.replace(".in.", ".out."))
    assert yaml.safe_load_all(rendered(case)) is not None
    assert rendered(case) == golden.read_text(), "run `make generated` and read the diff"


def documents(case: str) -> dict[str, Any]:
    path = next(path for path in CASES if path.name == f"{case}.in.yaml")
    return {d["kind"]: d for d in yaml.safe_load_all(rendered(path))}


@pytest.mark.parametrize("case", [path.name.removesuffix(".in.yaml") for path in CASES])
def test_pods_meet_the_restricted_pod_security_standard(case: str) -> None:
    spec = documents(case)["Deployment"]["spec"]["template"]["spec"]
    assert spec["securityContext"]["runAsNonRoot"]
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    for container in spec["initContainers"] + spec["containers"]:
        security = container["securityContext"]
        assert security["readOnlyRootFilesystem"]
        assert not security["allowPrivilegeEscalation"]
        assert security["capabilities"] == {"drop": ["ALL"]}
    allowed = {"emptyDir", "configMap", "secret", "persistentVolumeClaim"}
    assert all(set(volume) - {"name"} <= allowed for volume in spec["volumes"])
    assert not spec["automountServiceAccountToken"]


@pytest.mark.parametrize("case", [path.name.removesuffix(".in.yaml") for path in CASES])
def test_selectors_hold_the_servers_name_alone(case: str) -> None:
    made = documents(case)
    name = made["Deployment"]["metadata"]["name"]
    expected = {"flatwake.dev/server": name}
    assert made["Deployment"]["spec"]["selector"] == {"matchLabels": expected}
    assert made["Service"]["spec"]["selector"] == expected
    assert made["PodDisruptionBudget"]["spec"]["selector"] == {"matchLabels": expected}


def test_the_grace_period_covers_announcing_draining_and_leaving() -> None:
    spec = documents("hip")["Deployment"]["spec"]["template"]["spec"]
    assert spec["terminationGracePeriodSeconds"] == 5 + 150 + 15


def test_both_containers_ask_for_the_device_so_that_a_wrong_node_fails_before_the_download() -> (
    None
):
    spec = documents("hip")["Deployment"]["spec"]["template"]["spec"]
    for container in spec["initContainers"] + spec["containers"]:
        assert container["resources"]["limits"]["amd.com/gpu"] == 1
    claimed = documents("claim")
    spec = claimed["Deployment"]["spec"]["template"]["spec"]
    for container in spec["initContainers"] + spec["containers"]:
        assert container["resources"]["claims"] == [{"name": "gpu"}]
        assert "amd.com/gpu" not in container["resources"].get("limits", {})
    template = claimed["ResourceClaimTemplate"]["metadata"]["name"]
    assert spec["resourceClaims"] == [{"name": "gpu", "resourceClaimTemplateName": template}]


def test_under_an_autoscaler_replicas_are_never_written() -> None:
    for case in ("claim", "scaled"):
        assert "replicas" not in documents(case)["Deployment"]["spec"]


def test_a_cpu_pod_gets_no_device_and_no_groups() -> None:
    spec = documents("cpu")["Deployment"]["spec"]["template"]["spec"]
    assert "supplementalGroups" not in spec["securityContext"]
    assert "limits" not in spec["containers"][0]["resources"]


def test_node_terms_hold_besides_the_users_own() -> None:
    spec = documents("hip")["Deployment"]["spec"]["template"]["spec"]
    required = spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    for term in required["nodeSelectorTerms"]:
        keys = [expression["key"] for expression in term["matchExpressions"]]
        assert keys[0] == "disk"
        assert ".device-id" in keys[1]


def test_without_labels_on_nodes_the_preflight_decides() -> None:
    case = next(path for path in CASES if path.name == "hip.in.yaml")
    server = parse(yaml.safe_load(case.read_text()))
    decision = Decision("image", Backend.HIP, Strategy.SURGE, labelled=False)
    made = pod.template(Context(server, Settings(), decision))
    text = yaml.safe_dump(made)
    assert "device-id" not in text
    assert "--architecture\n" in text


def test_labels_of_both_forms_are_known() -> None:
    assert architectures.has_device_labels({"amd.com/gpu.device-id": "74a1"})
    assert architectures.has_device_labels({"beta.amd.com/gpu.device-id.7448": "2"})
    assert not architectures.has_device_labels({"amd.com/gpu.vram": "192G"})
