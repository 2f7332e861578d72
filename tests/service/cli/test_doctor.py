"""`flatwake doctor`: facts into findings, each with its cure."""

from __future__ import annotations

import json
from typing import Any

import pytest
from flatwake_service.cli import main as cli
from flatwake_service.cli.doctor import examine

GIB = 1 << 30
FACTS: dict[str, Any] = {
    "cpu": {"name": "a CPU", "architecture": "x86_64", "usable_cores": 4, "features": ["avx2"]},
    "memory": {"total": 16 * GIB, "available": 8 * GIB, "limit": None},
    "devices": {"kfd": False, "nodes": [], "groups": [0], "gpus": []},
    "packages": {"service": {"numpy": "2"}, "verify": {"torch": None}},
    "backends": {"cpu": None, "hip": "not built: install a compiler", "reference": None},
}


def finding(name: str, **changed: Any) -> tuple[bool | None, str, str]:
    found = next(f for f in examine({**FACTS, **changed}) if f.name == name)
    return found.ok, found.text, found.cure


def test_a_machine_without_a_gpu_is_no_failure() -> None:
    assert finding("amd gpu")[0] is None
    assert finding("backend hip") == (None, "not built", "install a compiler")
    assert finding("backend cpu")[0] is True
    assert all(f.ok is not False for f in examine(FACTS))


def test_a_device_that_may_not_be_opened_names_its_group() -> None:
    node = {"path": "/dev/dri/renderD128", "group": 992, "usable": False}
    devices = {"kfd": True, "nodes": [node], "groups": [0], "gpus": ["gfx942"]}
    assert finding("amd gpu", devices=devices)[:2] == (True, "gfx942")
    ok, text, cure = finding("device node", devices=devices)
    assert (ok, text) == (False, "/dev/dri/renderD128 belongs to group 992")
    assert "join group 992" in cure
    assert finding("hip device", devices=devices)[0] is False


def test_the_cpu_library_s_path_is_told() -> None:
    cpu = {**FACTS["cpu"], "features": []}
    ok, text, _ = finding("backend cpu", cpu=cpu)
    assert (ok, "plain C++" in text, "lacks" in text) == (True, True, True)
    assert finding("backend cpu")[1] == "usable (AVX2)"


def test_little_memory_and_missing_packages_fail() -> None:
    memory = {"total": 16 * GIB, "available": 8 * GIB, "limit": GIB // 2}
    ok, text, _ = finding("memory", memory=memory)
    assert (ok, text) == (False, "0.5 GiB available of 16.0 GiB, this process at most 0.5 GiB")
    ok, text, cure = finding("extra service", packages={"service": {"uvicorn": None}})
    assert (ok, text, cure) == (False, "without uvicorn", "pip install 'flatwake[service]'")
    assert finding("extra verify")[0] is None


def test_this_machine(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        cli.main(["doctor", "--json"])
    said = json.loads(capsys.readouterr().out)
    assert said["backends"]["reference"] is None
    assert said["cpu"]["usable_cores"] >= 1
    assert {f["name"] for f in said["findings"]} >= {"platform", "memory", "backend cpu"}
