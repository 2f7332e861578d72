"""What an image promises to whoever runs it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from testcluster import images as project_images
from testcluster import layout, lifecycle, registry
from testcluster.kube import Kube, Object

HARDENED = {
    "runAsNonRoot": True,
    "readOnlyRootFilesystem": True,
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "seccompProfile": {"type": "RuntimeDefault"},
}
NAMES = [project_images.OPERATOR.name, project_images.CPU.name]


def pod(name: str, image: str, command: list[str]) -> Object:
    """One container that runs to its end under the strictest settings."""
    container = {"name": "c", "image": image, "command": command, "securityContext": HARDENED}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {
            "restartPolicy": "Never",
            "automountServiceAccountToken": False,
            "containers": [container],
        },
    }


def run_to_its_end(kube: Kube, namespace: str, wanted: Object) -> str:
    """The pod's log once it has succeeded."""
    kube.apply(wanted, namespace=namespace)
    name = wanted["metadata"]["name"]

    def ended() -> str | None:
        found = kube.get("pod", name, namespace)
        phase: str = found["status"].get("phase", "") if found else ""
        return phase if phase in ("Succeeded", "Failed") else None

    phase = kube.until(f"pod {name} ends", ended, namespaces=[namespace])
    log = kube.kubectl("-n", namespace, "logs", name)
    assert phase == "Succeeded", log
    return log


@pytest.mark.parametrize("name", NAMES)
def test_an_image_runs_as_nobody_with_a_read_only_root(
    kube: Kube, images: dict[str, str], module_namespace: str, name: str
) -> None:
    wanted = pod(f"{name}-user", images[name], ["sh", "-c", "id -u; flatwake --help"])
    log = run_to_its_end(kube, module_namespace, wanted)
    assert log.startswith("65532\n")
    assert "Usage: flatwake" in log


@pytest.mark.parametrize("name", NAMES)
def test_an_image_holds_no_build_tools(
    kube: Kube, images: dict[str, str], module_namespace: str, name: str
) -> None:
    tools = "gcc g++ cc c++ cmake ninja make pip pip3"
    look = f"for tool in {tools}; do command -v $tool; done; python3 -m pip --version 2>&1; true"
    wanted = pod(f"{name}-tools", images[name], ["sh", "-c", look])
    log = run_to_its_end(kube, module_namespace, wanted)
    assert log.strip().endswith("No module named pip")
    assert len(log.splitlines()) == 1, f"found {log}"


@pytest.mark.parametrize("name", NAMES)
def test_an_image_says_what_it_is(images: dict[str, str], name: str) -> None:
    words = project_images.buildah("inspect", "--type", "image", images[name])
    found = json.loads(subprocess.run(words, capture_output=True, check=True).stdout)
    config = found["OCIv1"]["config"]
    title = {"operator": "flatwake-operator", "cpu": "flatwake-service"}[name]
    assert config["Labels"]["org.opencontainers.image.title"] == title
    assert config["Labels"]["org.opencontainers.image.licenses"] == "Apache-2.0"
    assert config["User"] == "65532:65532"
    assert config["Entrypoint"] == ["flatwake"]


def test_the_amd_image_says_what_a_machine_without_a_driver_lacks(
    kube: Kube, module_namespace: str
) -> None:
    """It is built on a base without ROCm here: the library opens it only when it serves."""
    lifecycle.load(kube.cluster, [project_images.build(project_images.HIP)])
    reference = project_images.HIP.reference()
    log = run_to_its_end(
        kube, module_namespace, pod("hip-doctor", reference, ["flatwake", "doctor"])
    )
    lines = {" ".join(line.split()[1:3]): line for line in log.splitlines() if line.split()}
    assert "usable" in lines["backend cpu"]
    assert "the HIP runtime is missing" in lines["backend hip"]
    assert "no /dev/kfd" in lines["amd gpu"]


@pytest.mark.slow
def test_a_push_ends_with_the_line_to_install_with(
    images: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Against a registry of the test's own, which Docker's tools call insecure."""
    with registry.serving() as serving:
        settings = tmp_path / "registries.conf"
        settings.write_text(f'[[registry]]\nlocation = "{serving.address}"\ninsecure = true\n')
        monkeypatch.setenv("CONTAINERS_REGISTRIES_CONF", str(settings))
        words = ["images", "operator", "--push", f"{serving.address}/team"]
        done = subprocess.run(
            [sys.executable, str(layout.SOURCES / "cluster"), *words],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
    assert done.returncode == 0, done.stderr
    name = images["operator"].replace("localhost", f"{serving.address}/team")
    assert done.stdout.endswith(
        "helm upgrade --install flatwake charts/flatwake \\\n"
        f"  -n flatwake-system --create-namespace --wait \\\n  --set images.operator={name}\n"
    )
    (manifest,) = serving.manifests.values()
    layers = [layer["digest"] for layer in json.loads(manifest)["layers"]]
    assert layers
    assert set(layers) <= serving.blobs.keys()
