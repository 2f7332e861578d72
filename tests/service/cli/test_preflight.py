"""What is missing of a device is named, with its cure, before anything is downloaded."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from flatwake_service.cli import preflight
from flatwake_service.cli.preflight import FoundDevice, PreflightFailed, check_nodes
from flatwake_service.manifest import Reason

GPU = FoundDevice("Radeon", "gfx1100", 24 << 30)


@pytest.fixture
def devices(tmp_path: Path) -> Path:
    (tmp_path / "dri").mkdir()
    for name in ("kfd", "dri/renderD128"):
        (tmp_path / name).touch()
        (tmp_path / name).chmod(0o660)
    return tmp_path


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preflight, "look", lambda: GPU)


def failure(devices: Path, *architectures: str, min_memory: int = 0) -> PreflightFailed:
    with pytest.raises(PreflightFailed) as caught:
        preflight.preflight(architectures, min_memory, devices=devices)
    assert caught.value.reason in set(Reason)
    return caught.value


@pytest.mark.usefixtures("gpu")
def test_a_device_that_fits_passes(devices: Path) -> None:
    assert preflight.preflight(["gfx1100"], 16 << 30, devices=devices) == GPU
    assert preflight.preflight(devices=devices) == GPU


@pytest.mark.parametrize("missing", ["kfd", "dri/renderD128"])
def test_a_missing_node_is_named(devices: Path, missing: str) -> None:
    (devices / missing).unlink()
    found = failure(devices)
    assert found.reason == "DeviceNodeMissing"
    assert missing.split("128")[0] in found.message


@pytest.mark.usefixtures("gpu")
def test_another_architecture_is_refused(devices: Path) -> None:
    found = failure(devices, "gfx942", "gfx90a")
    assert found.reason == "ArchitectureUnsupported"
    assert "gfx1100" in found.message


@pytest.mark.usefixtures("gpu")
def test_too_little_memory_is_refused_with_both_numbers(devices: Path) -> None:
    found = failure(devices, min_memory=48 << 30)
    assert found.reason == "DeviceMemoryShort"
    assert "24.0 GiB" in found.message
    assert "48.0 GiB" in found.message


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user")
def test_a_missing_render_group_is_named_with_its_number(devices: Path) -> None:
    for path in (devices, devices / "dri"):
        path.chmod(0o755)
    for parent in devices.parents:
        if parent.owner() == "root" and "pytest" in str(parent):
            parent.chmod(0o755)
    for name in ("kfd", "dri/renderD128"):
        os.chown(devices / name, 0, 104)
    script = (
        "import os, sys; from pathlib import Path\n"
        "from flatwake_service.cli.preflight import PreflightFailed, check_nodes\n"
        "os.setgroups([int(g) for g in sys.argv[2:]]); os.setgid(65534); os.setuid(65534)\n"
        "try: check_nodes(Path(sys.argv[1])); print('open')\n"
        "except PreflightFailed as error: print(error.reason, error)\n"
    )

    def tried(*groups: str) -> str:
        command = [sys.executable, "-c", script, str(devices), *groups]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout

    assert tried("104") == "open\n"
    denied = tried("44")
    assert denied.startswith("DeviceAccessDenied")
    assert "add 104 to accelerator.renderGroups" in denied


def test_nodes_that_open_pass(devices: Path) -> None:
    check_nodes(devices)
