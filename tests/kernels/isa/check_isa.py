"""Run the compiled AMD kernels' machine code on an instruction emulator, against the references.

    TINYGRAD_CHECKOUT=FOLDER python3 check_isa.py [--targets gfx1100,…] [--write]

The library for AMD runs as on a GPU; its HIP runtime is fake_hip.cpp, which hands each launch to
the emulator. First come single instructions that the emulator alone has wrong, then every op's case
and every check of the GPU backends, then some positions of the hybrid fixture. The emulator is
tinygrad's (MIT), from a checkout at the commit that docs/amd-isa.md names; nothing of it is here.
--write renews docs/amd-isa.md.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import date
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

HERE = Path(__file__).resolve().parent
TESTS = HERE.parents[1]
ROOT = TESTS.parent
sys.path[:0] = [str(HERE), str(HERE.parent / "support")]
TARGETS = ("gfx906", "gfx908", "gfx90a", "gfx942", "gfx1100", "gfx1151", "gfx1200", "gfx1201")
PAGE, MARK = ROOT / "docs" / "amd-isa.md", "<!-- table -->"
PROMPTS, POSITIONS = 2, 2  # of the fixture: a position is some ten million instructions


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument(
        "--targets", default=",".join(TARGETS), help="some of " + ", ".join(TARGETS)
    )
    parser.add_argument("--seed", type=int, default=1, help="shuffles blocks and waves (1)")
    parser.add_argument("--only", default="", help="cases whose name has this")
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--write", action="store_true", help="renew docs/amd-isa.md")
    parser.add_argument("--worker", metavar="RUNTIME", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        runtime = Path(options.worker)
        print(json.dumps(run_target(runtime, options.targets, options.seed, options.only)))
        return 0
    if not os.environ.get("TINYGRAD_CHECKOUT"):
        print("error: TINYGRAD_CHECKOUT names no checkout of tinygrad", file=sys.stderr)
        return 2
    targets = options.targets.split(",")
    with TemporaryDirectory() as folder:
        runtime = build_runtime(Path(folder))
        with ThreadPoolExecutor(options.jobs) as pool:
            found = dict(
                zip(
                    targets,
                    pool.map(lambda t: in_process(t, runtime, options), targets),
                    strict=True,
                )
            )
    for target, result in found.items():
        for line in result["failures"]:
            print(f"FAILED {target}: {line}")
    print("\n".join(table(found)))
    if options.write:
        write(found, options.seed)
    return 1 if any(result["failures"] for result in found.values()) else 0


def build_runtime(folder: Path) -> Path:
    path = folder / "libamdhip64.so"
    source = HERE.parent / "hip" / "fake_hip.cpp"
    subprocess.run(
        ["c++", "-std=c++17", "-O1", "-shared", "-fPIC", str(source), "-o", str(path)], check=True
    )
    return path


def in_process(target: str, runtime: Path, options: argparse.Namespace) -> dict[str, Any]:
    """A target's results; a process of its own, since a runtime is opened once."""
    kfd = runtime.with_name("kfd")
    kfd.touch()
    environment = {
        **os.environ,
        "FLATWAKE_HIP_RUNTIME": str(runtime),
        "FLATWAKE_KFD": str(kfd),
        "FAKE_HIP_ARCHITECTURE": target,
    }
    command = [sys.executable, __file__, "--targets", target, "--worker", str(runtime)]
    command += ["--seed", str(options.seed), "--only", options.only]
    began = time.monotonic()
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    print(f"{target}: {time.monotonic() - began:.0f} s", file=sys.stderr)
    if done.returncode:
        lines = done.stderr.strip().splitlines()
        return {"cases": 0, "agree": 0, "kernels": 0, "instructions": 0, "positions": "",
                "failures": [lines[-1] if lines else "it ended without a word"]}  # fmt: skip
    result: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return result


class Runner:
    """Runs what the fake runtime is asked to launch."""

    def __init__(self, runtime: Path, seed: int) -> None:
        from amd_isa import Emulator

        self._emulator_of: dict[int, Emulator] = {}
        self._make, self._seed = Emulator, seed
        self.kernels: set[str] = set()
        self.instructions = 0
        self.error: BaseException | None = None
        kind = ctypes.CFUNCTYPE(
            ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p, *[ctypes.c_uint] * 4, ctypes.c_void_p
        )
        self._callback = kind(self._run)
        ctypes.CDLL(str(runtime)).fake_hip_run_kernels(self._callback)

    def _run(self, code: int, name: bytes, x: int, y: int, z: int, threads: int, given: int) -> int:
        try:
            emulator = self._emulator_of.get(code)
            if emulator is None:
                emulator = self._emulator_of[code] = self._make(object_at(code))
            kernel = name.decode()
            size = next(
                a[".size"]
                for a in emulator.kernel(kernel).meta[".args"]
                if not a[".value_kind"].startswith("hidden_")
            )
            stats = emulator.launch(
                kernel, (x, y, z), (threads, 1, 1), [ctypes.string_at(given, size)], seed=self._seed
            )
            self.kernels.add(kernel)
            self.instructions += stats.instructions
        except BaseException as error:  # noqa: BLE001 - told where Python goes on
            self.error = self.error or error
            return 1
        return 0


def object_at(address: int) -> bytes:
    """The ELF file that lies there: its section headers come last."""
    head = ctypes.string_at(address, 64)
    sections = int.from_bytes(head[40:48], "little")
    return ctypes.string_at(address, sections + int.from_bytes(head[60:62], "little") * 64)


def run_target(runtime: Path, target: str, seed: int, only: str) -> dict[str, Any]:
    from device_checks import CHECKS
    from flatwake_kernels.backends import open_backend
    from flatwake_kernels.native import NativeBackend
    from gpu_cases import CASES
    from instructions import Trials
    from op_case import compare
    from op_case import run as run_case
    from target import target_named

    runner = Runner(runtime, seed)
    reference = open_backend("reference")
    backend = NativeBackend("hip")
    failures, count = [], 0

    def attempt(name: str, body: Any) -> None:
        nonlocal count
        if only not in name:
            return
        count += 1
        runner.error = None
        try:
            body()
        except Exception as error:  # noqa: BLE001 - every kind of failure is a line of the report
            why = runner.error or error
            failures.append(f"{name}: {type(why).__name__}: {why}".replace("\n", " ")[:300])

    for name, trial in Trials(target_named(target), seed).all().items():
        attempt(name, trial)
    for case in CASES:
        attempt(case.name, lambda c=case: compare(c, run_case(c, backend), run_case(c, reference)))
    for check in CHECKS:
        attempt(check.__name__, lambda c=check: c(backend, reference))
    backend.close()
    positions: list[str] = []
    attempt("fixture", lambda: positions.append(fixture()))
    if not count:
        failures.append(f"nothing was run: no case's name has {only!r}")
    return {
        "cases": count,
        "agree": max(0, count - len(failures)),
        "kernels": len(runner.kernels),
        "instructions": runner.instructions,
        "positions": " ".join(positions),
        "failures": failures,
    }


def fixture() -> str:
    """Greedy tokens of the hybrid, prompt and steps, where the margin exceeds the error."""
    from flatwake_service.engine.config import EngineConfig
    from flatwake_service.engine.runner import open_runner
    from flatwake_service.verify.replay import replay
    from flatwake_service.verify.trace import Trace, compare, load

    traces, _ = load(TESTS / "service" / "verify" / "goldens" / "hybrid.npz")
    n = POSITIONS
    cut = sorted(traces, key=lambda t: len(t.prompt))[:PROMPTS]
    cut = [Trace(t.prompt, t.tokens[:n], t.top_ids[:n], t.top_logits[:n]) for t in cut]
    config = EngineConfig(
        model=str(TESTS / "fixtures" / "hybrid" / "model"),
        backend="hip",
        context_length=128,
        prefill_tokens=64,
        graphs="off",
    )
    runner = open_runner(config, lambda *_: None)
    found = compare(cut, replay(runner, cut), least=0.0)
    runner.close()
    if found.mismatches:
        raise AssertionError(f"other tokens than transformers': {found.mismatches}")
    if not found.counted:
        raise AssertionError("no position's margin exceeds the error")
    return f"{found.counted} of {found.positions}"


def table(found: dict[str, dict[str, Any]]) -> list[str]:
    lines = [
        "| target | cases, checks | kernels run | million wave instructions | fixture's tokens |",
        "|---|---|---|---|---|",
    ]
    for target, r in found.items():
        lines.append(
            f"| {target} | {r['agree']} of {r['cases']} | {r['kernels']} "
            f"| {r['instructions'] / 1e6:.0f} | {r['positions']} |"
        )
    return lines


def write(found: dict[str, dict[str, Any]], seed: int) -> None:
    head = PAGE.read_text().partition(MARK)[0]
    lines = [MARK, f"{date.today()}, seed {seed}:", "", *table(found)]
    PAGE.write_text(head + "\n".join(lines) + "\n")


if __name__ == "__main__":
    sys.exit(main())
