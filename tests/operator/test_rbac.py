"""The chart's rules are enough for all that the operator does, and no more than it does."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from apiserver import ApiServer
from flatwake_operator import kinds
from lab import Lab, stuck_pod

NAMES = Path(__file__).parents[2] / "charts/flatwake/templates/_names.tpl"
NODES = {"apiGroups": [""], "resources": ["nodes"], "verbs": ["list", "watch"]}
READ_BY_KOPF = "watch"


def rules() -> list[dict[str, Any]]:
    text = NAMES.read_text()
    (block,) = re.findall(r'define "flatwake.rules" -}}\n(.*?)\{\{- end', text, re.DOTALL)
    return [*yaml.safe_load(block), NODES]


@pytest.fixture
def lab(full_api: ApiServer) -> Iterator[Lab]:
    role = "/apis/rbac.authorization.k8s.io/v1/clusterroles"
    full_api.call("POST", role, {"metadata": {"name": "operator"}, "rules": rules()})
    binding = {
        "metadata": {"name": "operator"},
        "roleRef": {
            "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "operator",
        },
        "subjects": [{"kind": "User", "name": "plain"}],
    }  # fmt: skip
    full_api.call("POST", role.replace("roles", "rolebindings"), binding)
    made = Lab(full_api, token=full_api.plain_token)
    yield made
    made.close()


def everything(lab: Lab) -> None:
    """Uses every right that there is."""
    template = {"metadata": {"name": "templates"}, "data": {"chat": "a"}}
    lab.ok("POST", kinds.CONFIG_MAP.path(lab.namespace), template)
    source = "hf://org/repo"
    full_model = {
        "source": source,
        "chatTemplate": {"name": "templates", "key": "chat"},
        "cache": {"claim": {}},
    }
    lab.create(
        model=full_model,
        accelerator={"backend": "Hip", "claim": {}},
        access={"from": [{"podSelector": {}}]},
        autoscaling={"maxReplicas": 1},
        endpoint={"pickerRef": {"name": "picker"}},
    )
    lab.settle()
    for number in range(3):
        selectors = [{"cel": {"expression": f"{number} == {number}"}}]
        lab.edit(accelerator={"claim": {"selectors": selectors}})
        lab.settle()
    lab.edit(
        access={"from": None}, autoscaling=None, template={"serviceAccountName": "other"},
        endpoint={"pickerRef": None},
    )  # fmt: skip
    lab.settle()
    lab.ok("DELETE", kinds.SERVICE.path(lab.namespace, "chat"))
    lab.settle()


def test_the_rules_are_enough_and_no_more(lab: Lab, status_server: Any) -> None:
    everything(lab)
    _drift(lab, status_server)
    lab.create("device", accelerator={"backend": "Auto"})  # counts nodes' devices
    lab.settle("device")
    stuck_pod(lab)
    used = set(lab.all_calls())
    # Server-side apply is one verb on the wire, and asks for create where there is nothing yet.
    used |= {("create", resource) for verb, resource in used if verb == "patch"}
    for rule in rules():
        for resource in rule["resources"]:
            plain = resource.split("/")[0]
            for verb in rule["verbs"]:
                assert verb == READ_BY_KOPF or (verb, plain) in used, f"{verb} {resource}"


def _drift(lab: Lab, status_server: Any) -> None:
    """Two pods of one source with different models: the later one is deleted, once."""
    lab.status_port = status_server.port
    lab.stop()
    lab.start()
    lab.create("drift", model={"source": "hf://org/drift"}, replicas=2)
    lab.settle("drift")
    for name, address, digest in (("one", "127.0.0.1", "a"), ("two", "127.0.0.2", "b")):
        status_server.reports[address] = {
            "phase": "ready",
            "model": {"source": "hf://org/drift", "digest": f"sha256:{digest}", "revision": "1"},
        }
        lab.pod(name, "drift")
        lab.pod_ready(name, address)
        lab.settle("drift")
    assert lab.want(kinds.CONFIG_MAP, "drift-model")["data"]["digest"] == "sha256:a"
    assert lab.get(kinds.POD, "one") is not None
    assert lab.get(kinds.POD, "two") is None
    lab.edit("drift", model={"source": "hf://org/other"})
    lab.settle("drift")
    assert lab.get(kinds.CONFIG_MAP, "drift-model") is None
