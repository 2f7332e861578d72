"""`flatwake doctor`: what this machine can run, what is missing, and the cure."""

from __future__ import annotations

import json
import platform
from dataclasses import asdict
from typing import Annotated, Any

import typer

from flatwake_service.cli.finding import Finding, show

app = typer.Typer(add_completion=False, rich_markup_mode="markdown")

BACKENDS = ("cpu", "hip", "reference", "emulation")


@app.command()
def doctor(
    as_json: Annotated[bool, typer.Option("--json", help="Print the findings as JSON.")] = False,
    graphs: Annotated[
        bool,
        typer.Option(
            "--graphs", help="Replay a graph on the device: does its runtime leak, do graphs pay?"
        ),
    ] = False,
) -> None:
    """Look at this machine: processor, memory, GPUs, kernel libraries, packages.

    Exits 1 when nothing here can serve at a useful speed.
    """
    from flatwake_service.cli import backends, machine

    usable = {name: backends.unavailable(name) for name in BACKENDS}
    facts: dict[str, Any] = {
        "cpu": machine.cpu(),
        "memory": machine.memory(),
        "devices": machine.devices(),
        "packages": machine.packages(),
        "backends": usable,
    }
    findings = examine(facts)
    if graphs:
        findings += _graphs(usable["hip"])
    if as_json:
        print(json.dumps({**facts, "findings": [asdict(f) for f in findings]}, indent=2))
    else:
        show(findings)
    raise typer.Exit(0 if usable["hip"] is None or usable["cpu"] is None else 1)


def examine(facts: dict[str, Any]) -> list[Finding]:
    """Facts into findings; touches nothing."""
    return [
        _platform(facts["cpu"]),
        _cpu(facts["cpu"]),
        _memory(facts["memory"]),
        *_gpu(facts["devices"], facts["backends"]["hip"]),
        *(_backend(n, missing, facts["cpu"]) for n, missing in facts["backends"].items()),
        *(_extra(extra, found) for extra, found in facts["packages"].items()),
    ]


def _platform(cpu: dict[str, Any]) -> Finding:
    system, architecture = platform.system(), cpu["architecture"]
    ok = system == "Linux" and architecture in ("x86_64", "aarch64")
    text = f"{system} on {architecture}, Python {platform.python_version()}"
    return Finding("platform", ok, text, "flatwake runs on Linux on x86-64 or aarch64")


def _cpu(cpu: dict[str, Any]) -> Finding:
    features = " ".join(cpu["features"]) or "no vector extensions that the kernels use"
    return Finding("processor", None, f"{cpu['name']}, {cpu['usable_cores']} cores: {features}")


def _memory(memory: dict[str, Any]) -> Finding:
    limit = memory["limit"]
    available = memory["available"] if limit is None else min(memory["available"], limit)
    bound = f", this process at most {_gib(limit)}" if limit else ""
    text = f"{_gib(available)} available of {_gib(memory['total'])}{bound}"
    return Finding(
        "memory", available > 1 << 30, text, "a model needs its file's size and some more"
    )


def _gpu(devices: dict[str, Any], missing: str | None) -> list[Finding]:
    if not devices["kfd"]:
        text = "no /dev/kfd: no AMD GPU with its kernel driver here"
        return [Finding("amd gpu", None, text)]
    found = ", ".join(devices["gpus"]) or "none that the kernel driver knows"
    findings = [Finding("amd gpu", bool(devices["gpus"]), found, "load the amdgpu kernel driver")]
    for node in devices["nodes"]:
        cure = (
            f"join group {node['group']} (usermod -aG), or in a pod name it in "
            "spec.accelerator.renderGroups"
        )
        text = f"{node['path']} belongs to group {node['group']}"
        findings.append(Finding("device node", node["usable"], text, cure))
    text = "a HIP device can be used" if missing is None else missing
    return [*findings, Finding("hip device", missing is None, text, "install the ROCm runtime")]


def _path(features: list[str]) -> str:
    """Which of the CPU library's kernels these features are enough for."""
    if "avx512_vnni" in features:
        return "AVX-512 VNNI"
    if "avx2" in features:
        return "AVX2"
    return "plain C++, several times slower than AVX2, which this processor lacks"


def _backend(name: str, missing: str | None, cpu: dict[str, Any]) -> Finding:
    optional = name in ("hip", "emulation")
    if missing is None:
        slow = {
            "cpu": f" ({_path(cpu['features'])})",
            "reference": " (numpy: exact and slow)",
            "emulation": " (for tests)",
        }
        return Finding(f"backend {name}", True, f"usable{slow.get(name, '')}")
    return _lacking(f"backend {name}", None if optional else False, missing)


def _lacking(name: str, ok: bool | None, missing: str) -> Finding:
    """What is missing says in its own words what to install."""
    what, _, cure = missing.partition(": install")
    return Finding(name, ok, what, f"install{cure}" if cure else "")


def _extra(extra: str, found: dict[str, str | None]) -> Finding:
    absent = [name for name, version in found.items() if version is None]
    if not absent:
        return Finding(f"extra {extra}", True, "installed")
    needed = extra == "service"
    return Finding(
        f"extra {extra}",
        False if needed else None,
        f"without {', '.join(absent)}",
        f"pip install 'flatwake[{extra}]'",
    )


def _graphs(missing: str | None) -> list[Finding]:
    """Replays on the HIP device, unless it is missing."""
    from flatwake_kernels.backend import BackendUnavailable

    from flatwake_service.cli import graphs

    if missing is None:
        try:
            return graphs.examine(*graphs.measure("hip"))
        except BackendUnavailable as error:
            missing = str(error)
    return [_lacking("graphs", False, missing)]


def _gib(size: int) -> str:
    return f"{size / (1 << 30):.1f} GiB"
