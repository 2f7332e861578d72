"""Devices for dynamic resource allocation: a class, and what a driver would publish of a node.

There is no driver behind them, so the scheduler allocates and no container starts.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from testcluster.kube import Kube, Object
from testcluster.layout import NODE

DRIVER = CLASS = "gpu.amd.com"


def objects(device_id: str, memory: str) -> list[Object]:
    """A DeviceClass and a ResourceSlice with one device."""
    device = {
        "name": "gpu-0",
        "attributes": {"deviceID": {"string": device_id}},
        "capacity": {"memory": {"value": memory}},
    }
    return [
        {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "DeviceClass",
            "metadata": {"name": CLASS},
            "spec": {"selectors": [{"cel": {"expression": f'device.driver == "{DRIVER}"'}}]},
        },
        {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceSlice",
            "metadata": {"name": f"{NODE}-{DRIVER}"},
            "spec": {
                "driver": DRIVER,
                "nodeName": NODE,
                "pool": {"name": NODE, "generation": 1, "resourceSliceCount": 1},
                "devices": [device],
            },
        },
    ]


@contextmanager
def published(kube: Kube, *, device_id: str, memory: str) -> Iterator[None]:
    """One device for the length of a block."""
    made = objects(device_id, memory)
    kube.apply(*made)
    try:
        yield
    finally:
        for thing in made:
            kube.kubectl("delete", thing["kind"], thing["metadata"]["name"])
