"""Dynamic resource allocation: the real scheduler, on devices that the test publishes."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from testcluster import slices
from testcluster.hub import Hub
from testcluster.kube import Kube, Object
from testcluster.servers import Server, example

MI300X = "0x74a1"


@pytest.fixture(scope="module", autouse=True)
def device(kube: Kube) -> Iterator[None]:
    """One MI300X."""
    with slices.published(kube, device_id=MI300X, memory="192Gi"):
        yield


def asking(hub: Hub, name: str, **accelerator: object) -> Object:
    manifest = example("smollm2.yaml", hub)
    manifest["metadata"]["name"] = name
    manifest["spec"]["image"] = "localhost/busybox:1"  # no container comes to start
    manifest["spec"]["accelerator"] = {"backend": "Hip", "claim": {}} | accelerator
    return manifest


def test_the_scheduler_allocates_a_device_that_fits(
    kube: Kube, release: str, hub: Hub, namespace: str
) -> None:
    wanted = asking(hub, "fits", architectures=["gfx942"], minMemory="128Gi")
    kube.apply(wanted, namespace=namespace)

    def allocated() -> Object | None:
        claims = kube.list("resourceclaims", namespace, "flatwake.dev/server=fits")
        found = claims[0].get("status", {}).get("allocation") if claims else None
        return dict(found) if found else None

    found = kube.until("the claim is allocated", allocated, namespaces=[namespace])
    (result,) = found["devices"]["results"]
    assert (result["driver"], result["device"]) == (slices.DRIVER, "gpu-0")
    (pod,) = Server(kube, namespace, "fits").pods()
    assert pod["spec"]["nodeName"] == "node1"


@pytest.mark.parametrize(
    ("name", "asked"),
    [("memory", {"minMemory": "256Gi"}), ("architecture", {"architectures": ["gfx1100"]})],
)
def test_a_device_that_does_not_fit_is_not_given(
    kube: Kube, release: str, hub: Hub, namespace: str, name: str, asked: dict[str, object]
) -> None:
    kube.apply(asking(hub, name, **asked), namespace=namespace)
    server = Server(kube, namespace, name)
    found = server.wait_for("AcceleratorReady", "False", "DevicesShort")
    assert "claim" in found["message"]
    pod = server.only_pod()
    assert "nodeName" not in pod["spec"]
