"""Which devices have which architecture, and node affinity from that.

Ids are PCI device ids of vendor 1002. A test looks each up in Debian's pci.ids by the chip's name;
those that Debian 12's doesn't know yet carry their source here.
"""

from flatwake_service.manifest import Architecture

from flatwake_operator.settings import Object

DEVICE_IDS: dict[Architecture, tuple[str, ...]] = {
    Architecture.GFX906: ("66a0", "66a1", "66af"),
    Architecture.GFX908: ("738c",),
    Architecture.GFX90A: ("7408", "740c", "740f"),
    Architecture.GFX942: (
        "74a0",  # libdrm amdgpu.ids: Instinct MI300A
        "74a1",  # libdrm amdgpu.ids: Instinct MI300X
        "74a2",  # libdrm amdgpu.ids: Instinct MI308X
        "74a5",  # libdrm amdgpu.ids: Instinct MI325X
        "74a9",  # libdrm amdgpu.ids: Instinct MI300X HF
        "74b5",  # libdrm amdgpu.ids: Instinct MI300X VF
        "74b9",  # AMD gpu-operator's rule for NFD: MI325X VF
        "74bd",  # libdrm amdgpu.ids: Instinct MI300X HF
    ),
    Architecture.GFX950: (
        "75a0",  # libdrm amdgpu.ids: Instinct MI350X
        "75a3",  # libdrm amdgpu.ids: Instinct MI355X
    ),
    Architecture.GFX1030: ("73a3", "73a5", "73bf"),
    Architecture.GFX1100: (
        "7448",  # libdrm amdgpu.ids: Radeon Pro W7900
        "744c",
        "745e",  # libdrm amdgpu.ids: Radeon Pro W7800
    ),
    Architecture.GFX1151: ("1586",),  # libdrm amdgpu.ids: Radeon 8060S (Strix Halo)
    Architecture.GFX1200: ("7590",),  # libdrm amdgpu.ids: Radeon RX 9060 XT
    Architecture.GFX1201: (
        "7550",  # libdrm amdgpu.ids: Radeon RX 9070
        "7551",  # libdrm amdgpu.ids: Radeon AI PRO R9700
    ),
}

PREFIXES = ("amd.com/gpu", "beta.amd.com/gpu")
"""AMD's node labeller, now and before."""


def device_ids(architectures: tuple[Architecture, ...]) -> list[str]:
    """The ids of all these architectures, sorted."""
    return sorted(device for a in architectures for device in DEVICE_IDS[a])


def has_device_labels(node_labels: dict[str, str]) -> bool:
    """Whether AMD's labeller has said which devices a node has."""
    return any(
        label == f"{prefix}.device-id" or label.startswith(f"{prefix}.device-id.")
        for label in node_labels
        for prefix in PREFIXES
    )


def node_terms(architectures: tuple[Architecture, ...]) -> list[Object]:
    """nodeSelectorTerms (any of them suffices) for nodes with such a device.

    A node with one kind of device has `…device-id=74a1`; a node with several kinds has
    `…device-id.74a1=<count>` for each.
    """
    ids = device_ids(architectures)
    terms: list[Object] = []
    for prefix in PREFIXES:
        alone = {"key": f"{prefix}.device-id", "operator": "In", "values": ids}
        terms.append({"matchExpressions": [alone]})
        for device in ids:
            among = {"key": f"{prefix}.device-id.{device}", "operator": "Exists"}
            terms.append({"matchExpressions": [among]})
    return terms


def with_terms(affinity: Object, terms: list[Object]) -> Object:
    """A pod's affinity that asks for one of these terms besides what it asks for already."""
    node = dict(affinity.get("nodeAffinity") or {})
    required = dict(node.get("requiredDuringSchedulingIgnoredDuringExecution") or {})
    given = required.get("nodeSelectorTerms") or [{}]
    # Terms are alternatives: both conditions hold for one of each, joined.
    joined = [_join(left, right) for left in given for right in terms]
    required["nodeSelectorTerms"] = joined
    node["requiredDuringSchedulingIgnoredDuringExecution"] = required
    return {**affinity, "nodeAffinity": node}


def _join(left: Object, right: Object) -> Object:
    both: Object = {**left, **right}
    for key in ("matchExpressions", "matchFields"):
        values = [*left.get(key, []), *right.get(key, [])]
        if values:
            both[key] = values
    return both
