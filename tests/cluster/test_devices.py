"""Servers on pretended AMD devices: waiting, serving, rolling, failing and recovering."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from testcluster import gpus, lifecycle, pretended
from testcluster import images as project_images
from testcluster import release as chart
from testcluster.gpus import Gpus
from testcluster.hub import Hub
from testcluster.kube import Kube, Object
from testcluster.layout import Cluster
from testcluster.servers import Server, example

ENGINE = {"contextLength": 512, "maxSequences": 2, "graphs": "Off"}


@pytest.fixture(scope="module")
def image(cluster: Cluster) -> str:
    """The service image whose devices are pretended, loaded into the node."""
    reference, archive = pretended.build()
    lifecycle.load(cluster, [archive])
    return reference


@pytest.fixture(scope="module")
def manifest(image: str, hub: Hub) -> Object:
    """A server that asks for one AMD device."""
    made = example("smollm2.yaml", hub, engine=dict(ENGINE), image=image)
    made["spec"]["accelerator"] = {"backend": "Hip"}
    return made


@pytest.fixture(scope="module")
def before_any_device(kube: Kube, release: str, manifest: Object, module_namespace: str) -> Object:
    """What the only server of this module said while the node had no device."""
    kube.apply(manifest, namespace=module_namespace)
    server = Server(kube, module_namespace, "smollm2")
    return server.wait_for("AcceleratorReady", "False", "DevicesShort", timeout_s=60)


@pytest.fixture(scope="module")
def one_gpu(kube: Kube, before_any_device: Object) -> Iterator[Gpus]:
    with gpus.plugged_in(kube, 1) as plugged:
        yield plugged


@pytest.fixture(scope="module")
def server(kube: Kube, one_gpu: Gpus, module_namespace: str) -> Server:
    """The server, on the one device that there is."""
    made = Server(kube, module_namespace, "smollm2")
    made.wait_for("Ready", timeout_s=240)
    return made


def test_without_a_device_it_is_said_what_is_needed(before_any_device: Object) -> None:
    message = before_any_device["message"]
    assert "amd.com/gpu: 1 needed, 0 free of 0" in message


def test_a_server_starts_when_a_device_appears(server: Server) -> None:
    assert server.chat()["choices"][0]["message"]["content"].strip()
    found = server.wait_for("AcceleratorReady")
    assert found["reason"] == "DeviceFound"
    accelerator = server.read()["status"]["accelerator"]
    assert accelerator["backend"] == "Hip"
    assert accelerator["architecture"] == "gfx942"


def test_one_device_is_enough_for_an_update(server: Server) -> None:
    old = server.wait_for_pods("one pod", lambda ready: len(ready) == 1)
    server.patch({"engine": {**ENGINE, "maxSequences": 3}})
    server.wait_for_pods("another pod", lambda ready: len(ready) == 1 and ready.isdisjoint(old))
    assert "Replace" in server.wait_for("Progressing", "False")["message"]


def test_a_device_that_turns_unhealthy_shows_in_the_resource(server: Server, one_gpu: Gpus) -> None:
    # The pod that runs keeps its device, and so the server stays ready.
    one_gpu.set_unhealthy(0)
    try:
        found = server.wait_for("AcceleratorReady", "True", "DeviceUnhealthy", timeout_s=90)
    finally:
        one_gpu.set_unhealthy()
    assert "1 of 1 amd.com/gpu unhealthy" in found["message"]
    server.wait_for("AcceleratorReady", "True", "DeviceFound", timeout_s=90)
    assert server.condition("Ready")["status"] == "True"


def test_a_missing_render_group_is_named_with_its_cure(server: Server) -> None:
    server.patch({"accelerator": {"renderGroups": [44]}})
    refused = server.wait_for("AcceleratorReady", "False", "DeviceAccessDenied", timeout_s=120)
    assert "104" in refused["message"]
    assert "renderGroups" in refused["message"]
    server.patch({"accelerator": {"renderGroups": [104]}})
    server.wait_for("Ready", timeout_s=240)


@pytest.fixture
def amd_image(cluster: Cluster, images: dict[str, str], release: str) -> Iterator[str]:
    """The AMD image as the chart's own, built on a base without ROCm."""
    lifecycle.load(cluster, [project_images.build(project_images.HIP)])
    reference = project_images.HIP.reference()
    chart.install(cluster, images | {"hip": reference})
    yield reference
    chart.install(cluster, images)


def test_the_amd_image_starts_and_says_that_it_lacks_a_runtime(
    kube: Kube, server: Server, amd_image: str, hub: Hub, namespace: str
) -> None:
    # The other server makes room: there is one device.
    kube.kubectl("-n", server.namespace, "scale", "infs", server.name, "--replicas=0")
    manifest = example("smollm2.yaml", hub, accelerator={"backend": "Hip"})
    kube.apply(manifest, namespace=namespace)
    amd = Server(kube, namespace, "smollm2")
    found = amd.wait_for("AcceleratorReady", "False", "RuntimeMissing", timeout_s=180)
    assert "libamdhip64" in found["message"]
    assert amd.read()["status"]["image"] == amd_image
    assert amd.condition("Ready")["status"] == "False"
    assert amd.row()["REASON"] == "RuntimeMissing"
    (pod,) = amd.pods()
    (fetch,) = pod["status"]["initContainerStatuses"]
    assert not fetch["ready"], "it says so before the model is fetched"
