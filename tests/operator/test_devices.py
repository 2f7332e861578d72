"""Devices: what is decided by how many are free, and what is said where there are none."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from apiserver import ApiServer
from flatwake_operator import devices, kinds
from flatwake_operator.settings import Object
from flatwake_service.manifest import parse
from lab import Lab, stuck_pod

SURGE = {"maxSurge": 1, "maxUnavailable": 0}
REPLACE = {"maxSurge": 0, "maxUnavailable": 1}


class Devices:
    """Nodes that offer a resource of this test's own."""

    def __init__(self, lab: Lab) -> None:
        self.lab = lab
        self.resource = f"amd.com/{lab.namespace}"
        self.nodes: list[str] = []

    def node(self, name: str, count: int, healthy: int | None = None) -> None:
        path = kinds.NODE.path(None)
        full = f"{self.lab.namespace}-{name}"
        if full not in self.nodes:
            self.lab.ok("POST", path, {"metadata": {"name": full}})
            self.nodes.append(full)
        offered = {self.resource: str(count)}
        status = {
            "capacity": offered,
            "allocatable": {self.resource: str(count if healthy is None else healthy)},
        }
        merge = "application/merge-patch+json"
        self.lab.ok("PATCH", f"{path}/{full}/status", {"status": status}, merge)
        # The node controller isn't there to take its taint away.
        self.lab.ok("PATCH", f"{path}/{full}", {"spec": {"taints": None}}, merge)

    def user(self, name: str, node: str) -> None:
        """Somebody's pod that holds a device."""
        resources = {"limits": {self.resource: "1"}, "requests": {self.resource: "1"}}
        spec = {
            "nodeName": f"{self.lab.namespace}-{node}",
            "containers": [{"name": "c", "image": "x", "resources": resources}],
        }
        body = {"metadata": {"name": name}, "spec": spec}
        self.lab.ok("POST", kinds.POD.path(self.lab.namespace), body)

    def create(self, **spec: Any) -> None:
        self.lab.create(accelerator={"resource": self.resource}, **spec)
        self.lab.settle()

    def strategy(self) -> Object:
        deployment = self.lab.want(kinds.DEPLOYMENT)
        return dict(deployment["spec"]["strategy"]["rollingUpdate"])

    def backend(self) -> str:
        return str(self.lab.want(kinds.SERVER)["status"]["accelerator"]["backend"])


@pytest.fixture
def there(api: ApiServer) -> Iterator[Devices]:
    lab = Lab(api)
    made = Devices(lab)
    yield made
    for node in made.nodes:
        lab.ok("DELETE", kinds.NODE.path(None, node))
    lab.close()


def pending(lab: Lab, pod: str, seconds_ago: int) -> None:
    since = (datetime.now(UTC) - timedelta(seconds=seconds_ago)).strftime("%Y-%m-%dT%H:%M:%SZ")
    condition = {
        "type": "PodScheduled",
        "status": "False",
        "reason": "Unschedulable",
        "message": "0/1 nodes are available: 1 Insufficient devices.",
        "lastTransitionTime": since,
    }
    lab.pod_status(pod, {"phase": "Pending", "conditions": [condition]})


def test_auto_is_hip_where_a_node_offers_devices_and_is_kept(there: Devices) -> None:
    there.node("a", 1)
    there.create()
    assert there.backend() == "Hip"
    there.node("a", 0)
    there.lab.edit(limits={"queue": 3})
    there.lab.settle()
    assert there.backend() == "Hip"


def test_auto_is_cpu_where_none_does_and_is_kept(there: Devices) -> None:
    there.create()
    assert there.backend() == "Cpu"
    message = there.lab.conditions()["AcceleratorReady"]["message"]
    assert f"no node advertised {there.resource}" in message
    there.node("a", 1)
    there.lab.edit(limits={"queue": 3})
    there.lab.settle()
    assert there.backend() == "Cpu"


def test_a_free_device_for_one_more_pod_means_surge(there: Devices) -> None:
    there.node("a", 3)
    there.user("other", "a")
    there.create()
    assert there.strategy() == SURGE
    assert (
        f"1 {there.resource} were free for one more pod"
        in there.lab.conditions()["Progressing"]["message"]
    )


def test_a_device_that_the_first_pod_takes_means_replace(there: Devices) -> None:
    there.node("a", 2)
    there.user("other", "a")
    there.create()
    assert there.strategy() == REPLACE
    assert (
        f"no {there.resource} was free for one more pod"
        in there.lab.conditions()["Progressing"]["message"]
    )


def test_a_strategy_by_name_holds_at_once_and_rolls_nothing(there: Devices) -> None:
    there.node("a", 2)
    there.create()
    before = there.lab.want(kinds.DEPLOYMENT)["spec"]["template"]
    there.lab.edit(rollout={"strategy": "Replace"})
    there.lab.settle()
    assert there.strategy() == REPLACE
    assert there.lab.want(kinds.DEPLOYMENT)["spec"]["template"] == before


def test_a_surge_that_finds_no_device_for_a_minute_turns_to_replace(there: Devices) -> None:
    there.node("a", 2)
    there.create()
    there.lab.pod("old")
    there.lab.pod_ready("old")
    there.lab.edit(limits={"queue": 3})
    there.lab.settle()
    assert there.strategy() == SURGE
    there.lab.pod("new")
    pending(there.lab, "new", 30)
    there.lab.settle()
    assert there.strategy() == SURGE
    pending(there.lab, "new", 61)
    there.lab.settle()
    assert there.strategy() == REPLACE
    assert "found no device for 60 s" in there.lab.conditions()["Progressing"]["message"]


def test_without_devices_it_says_needed_and_free_and_recovers(there: Devices) -> None:
    there.node("a", 1)
    there.user("other", "a")
    there.create()
    there.lab.pod("one")
    pending(there.lab, "one", 5)
    there.lab.settle()
    assert there.lab.condition("AcceleratorReady") == ("False", "DevicesShort")
    assert there.lab.condition("Ready") == ("False", "DevicesShort")
    message = there.lab.conditions()["AcceleratorReady"]["message"]
    assert f"{there.resource}: 1 needed, 0 free of 1" in message
    there.lab.pod_ready("one")
    there.lab.all_available()
    there.lab.settle()
    assert there.lab.condition("ModelReady")[0] == "True"


def test_a_device_that_turns_unhealthy_shows(there: Devices) -> None:
    there.node("a", 2, healthy=1)
    there.create()
    assert there.lab.condition("AcceleratorReady") == ("False", "DeviceUnhealthy")
    message = there.lab.conditions()["AcceleratorReady"]["message"]
    assert f"1 of 2 {there.resource} unhealthy" in message


def without(lab: Lab, *, nodes: bool = True, kind: kinds.Kind | None = None) -> None:
    """Takes a right or an API away from the operator."""
    assert lab.abilities is not None
    apis = frozenset(lab.abilities.apis - {kind}) if kind else lab.abilities.apis
    lab.abilities = replace(lab.abilities, nodes=nodes, all_pods=nodes, apis=apis)
    lab.stop()
    lab.start()


def test_without_a_right_on_nodes_auto_asks_for_a_name(api: ApiServer) -> None:
    lab = Lab(api)
    without(lab, nodes=False)
    lab.create(accelerator={"backend": "Auto"})
    lab.settle()
    assert lab.condition("Accepted") == ("False", "BackendUndecided")
    lab.edit(accelerator={"backend": "Hip"})
    lab.settle()
    assert lab.condition("Accepted") == ("True", "Accepted")
    assert lab.want(kinds.DEPLOYMENT)["spec"]["strategy"]["rollingUpdate"] == REPLACE
    lab.close()


def test_an_api_that_the_cluster_lacks_is_named(api: ApiServer) -> None:
    lab = Lab(api)
    lab.create(endpoint={"pickerRef": {"name": "picker"}})
    lab.settle()
    assert lab.condition("Accepted") == ("True", "ApiMissing")
    assert "inference.networking.k8s.io/v1" in lab.conditions()["Accepted"]["message"]
    assert lab.get(kinds.DEPLOYMENT) is not None
    without(lab, kind=kinds.DEVICE)
    lab.create("claim", accelerator={"backend": "Hip", "claim": {}})
    lab.settle("claim")
    assert lab.condition("Accepted", "claim") == ("False", "ApiMissing")
    lab.close()


def test_a_pod_whose_volume_is_missing_says_so(api: ApiServer) -> None:
    lab = Lab(api)
    stuck_pod(lab)
    assert lab.condition("ModelReady", "stuck") == ("False", "ContainerConfig")
    assert 'configmap "extra" not found' in lab.conditions("stuck")["ModelReady"]["message"]
    lab.close()


def test_an_image_that_isnt_there_is_asked_for(api: ApiServer) -> None:
    from flatwake_operator.settings import Settings

    lab = Lab(api, settings=Settings())
    lab.create()
    lab.settle()
    assert lab.condition("Accepted") == ("False", "ImageUnset")
    assert "images.cpu" in lab.conditions()["Accepted"]["message"]
    lab.close()


def server(**template: Any) -> Any:
    return parse(
        {
            "apiVersion": "flatwake.dev/v1alpha1",
            "kind": "InferenceServer",
            "metadata": {"name": "a"},
            "spec": {
                "model": {"source": "file:///m"},
                "accelerator": {"architectures": ["gfx942"]},
                "template": template,
            },
        }
    )


def node(labels: dict[str, str] | None = None, **spec: Any) -> Object:
    status = {"capacity": {"amd.com/gpu": "8"}, "allocatable": {"amd.com/gpu": "8"}}
    return {"metadata": {"name": "n", "labels": labels or {}}, "spec": spec, "status": status}


TAINT = {"key": "amd.com/gpu", "value": "present", "effect": "NoSchedule"}
FITS: list[Any] = [
    pytest.param({}, node(), True, id="no labels: preflight decides"),
    pytest.param({}, node({"amd.com/gpu.device-id": "74a1"}), True, id="its device"),
    pytest.param({}, node({"amd.com/gpu.device-id": "7448"}), False, id="another device"),
    pytest.param({}, node({"amd.com/gpu.device-id.74a1": "4"}), True, id="its device among others"),
    pytest.param({}, node(unschedulable=True), False, id="a cordoned node"),
    pytest.param({}, node(taints=[TAINT]), False, id="a taint"),
    pytest.param(
        {"tolerations": [{"key": "amd.com/gpu", "operator": "Exists"}]},
        node(taints=[TAINT]),
        True,
        id="a tolerated taint",
    ),
    pytest.param({"nodeSelector": {"a": "b"}}, node(), False, id="a selector"),
    pytest.param({"nodeSelector": {"a": "b"}}, node({"a": "b"}), True, id="a selector that holds"),
]


@pytest.mark.parametrize(("template", "where", "fits"), FITS)
def test_which_nodes_count(template: dict[str, Any], where: Object, fits: bool) -> None:
    assert devices.fits(server(**template), where) is fits
    counted = devices.count(server(**template), [where], [])
    assert counted.total_free == (8 if fits else 0)


def test_pods_hold_devices_until_they_are_gone() -> None:
    def pod(phase: str, init: int = 0, main: int = 0, **meta: str) -> Object:
        def container(count: int) -> Object:
            return {"resources": {"limits": {"amd.com/gpu": str(count)}}}

        return {
            "metadata": meta,
            "spec": {
                "nodeName": "n",
                "initContainers": [container(init)],
                "containers": [container(main), container(main)],
            },
            "status": {"phase": phase},
        }

    pods = [
        pod("Running", main=1),
        pod("Pending", init=3, main=1),
        pod("Running", main=1, deletionTimestamp="now"),
        pod("Succeeded", main=1),
    ]
    assert devices.count(server(), [node()], pods).free == {"n": 8 - 2 - 3 - 2}
