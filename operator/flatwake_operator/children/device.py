"""ResourceClaimTemplate: a device by dynamic resource allocation, in place of a device plugin's.

Its spec can't be changed, so its name ends in a hash of it and each revision names its own.
"""

import hashlib
import json

from flatwake_operator import labels
from flatwake_operator.children.architectures import device_ids
from flatwake_operator.settings import Context, Object

DRIVER = "gpu.amd.com"
REQUEST = "gpu"


def claim_spec(context: Context) -> Object | None:
    """The ResourceClaim that each pod gets; None where the device plugin serves."""
    accelerator = context.server.spec.accelerator
    if accelerator.claim is None:
        return None
    expressions = [selector.cel.expression for selector in accelerator.claim.selectors]
    if accelerator.architectures:
        ids = device_ids(accelerator.architectures)
        expressions.append(_attribute("deviceID", ids))
    if accelerator.min_memory:
        expressions.append(_capacity("memory", accelerator.min_memory))
    exactly: Object = {
        "deviceClassName": accelerator.claim.device_class_name,
        "allocationMode": "ExactCount",
        "count": 1,
    }
    if expressions:
        exactly["selectors"] = [{"cel": {"expression": text}} for text in expressions]
    return {"devices": {"requests": [{"name": REQUEST, "exactly": exactly}]}}


def claim_template_name(server: str, spec: Object) -> str:
    text = json.dumps(spec, sort_keys=True, separators=(",", ":"))
    return f"{server}-device-{hashlib.sha256(text.encode()).hexdigest()[:8]}"


def build(context: Context) -> Object | None:
    spec = claim_spec(context)
    return None if spec is None else template(context, spec)


def template(context: Context, spec: Object) -> Object:
    """The object for a claim's spec, which a revision may have kept."""
    name = claim_template_name(context.name, spec)
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": labels.metadata(context, name),
        "spec": {"metadata": {"labels": labels.labels(context.name)}, "spec": spec},
    }


def _attribute(name: str, values: list[str]) -> str:
    # A missing key would end the allocation on every node, so each is asked for first.
    listed = ", ".join(f'"{value}"' for value in values)
    return (
        f'cel.bind(a, device.attributes["{DRIVER}"], has(a.{name}) && '
        f'a.{name}.lowerAscii().replace("0x", "") in [{listed}])'
    )


def _capacity(name: str, least: str) -> str:
    return (
        f'cel.bind(c, device.capacity["{DRIVER}"], has(c.{name}) && '
        f'c.{name}.compareTo(quantity("{least}")) >= 0)'
    )
