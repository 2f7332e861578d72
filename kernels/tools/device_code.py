"""Compile the kernels to device code and embed it: `device_code.py amd|cuda --out FOLDER`.

One object a source and architecture, kept by the hash of everything it depends on. FOLDER gets
`code_objects.S`, which puts all of them into a library. Standard library only: CMake calls this.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path

KERNELS = Path(__file__).resolve().parents[1]
CACHE = KERNELS.parent / "build" / "device-code"
AMD_TARGETS = (
    "gfx906", "gfx908", "gfx90a", "gfx942", "gfx1030", "gfx1100", "gfx1151", "gfx1200", "gfx1201",
)  # fmt: skip
AMD_FLAGS = (
    "-x", "hip", "--cuda-device-only", "--no-gpu-bundle-output", "-nogpulib", "-nogpuinc", "-O3",
    "-std=c++17", "-ffp-contract=off", "-Wall", "-Wextra", "-Werror", "-fno-color-diagnostics",
    "-Rpass-analysis=kernel-resource-usage",
)  # fmt: skip
CUDA_FLAGS = ("-x", "cu", "-cubin", "-O3", "-std=c++17", "-fmad=false", "-Xptxas", "-v")
SMALLEST_CLANG = 17


class BuildError(Exception):
    """What is missing, or what the compiler said."""


@dataclass(frozen=True)
class Resources:
    """What a kernel takes, as the compiler says. `occupancy` is waves a SIMD (0: not told)."""

    kernel: str
    vgprs: int
    sgprs: int
    agprs: int
    scratch: int
    vgpr_spills: int
    sgpr_spills: int
    lds: int
    occupancy: int


@dataclass(frozen=True)
class CodeObject:
    source: str
    target: str
    path: Path
    resources: tuple[Resources, ...]
    flat: int
    """Loads and stores through generic addresses: slower than global ones."""


@dataclass(frozen=True)
class Compiler:
    name: str
    path: str
    version: str

    def command(self, source: Path, target: str, out: Path) -> list[str]:
        includes = [f"-I{KERNELS / 'include'}", f"-I{KERNELS}", f"-I{KERNELS / 'hip'}"]
        if self.name == "cuda":
            return [
                self.path,
                *CUDA_FLAGS,
                f"-arch={target}",
                *includes,
                str(source),
                "-o",
                str(out),
            ]
        flags = [*AMD_FLAGS, f"--offload-arch={target}"]
        return [self.path, *flags, *includes, str(source), "-o", str(out)]


def find_clang() -> Compiler:
    """Clang that compiles for AMD, with its linker.

    Raises:
        BuildError: there is none; the message says which packages have it.
    """
    named = os.environ.get("FLATWAKE_CLANG")
    names = [named] if named else ["clang++-19", "clang++-20", "clang++-18", "clang++"]
    for name in names:
        path = shutil.which(name)
        if not path:
            continue
        text = _output([path, "--version"])
        version = re.search(r"clang version (\d+)", text)
        if (
            version
            and int(version[1]) >= SMALLEST_CLANG
            and "amdgcn" in _output([path, "--print-targets"])
        ):
            return Compiler("amd", path, text.splitlines()[0])
    raise BuildError(
        "no clang for AMD GPUs: install clang-19, lld-19 and llvm-19, or name one by FLATWAKE_CLANG"
    )


def find_nvcc() -> Compiler:
    """Raises BuildError: there is none."""
    wheels = sorted((KERNELS.parent / "build" / "cuda").glob("site/nvidia/cu*/bin/nvcc"))
    homes = [Path(os.environ[n]) / "bin" / "nvcc" for n in ("CUDA_HOME",) if n in os.environ]
    found = shutil.which("nvcc")
    for path in [*homes, *wheels, *([Path(found)] if found else [])]:
        if path.is_file():
            return Compiler("cuda", str(path), _output([str(path), "--version"]).splitlines()[-1])
    raise BuildError("no nvcc: run `make cuda-compiler`, or set CUDA_HOME")


def sources() -> list[Path]:
    return sorted((KERNELS / "hip").glob("*.hip"))


def compile_all(compiler: Compiler, targets: Sequence[str], jobs: int) -> list[CodeObject]:
    """Every source for every target, from the cache where nothing has changed.

    Raises:
        BuildError: the compiler refused; with its own text.
    """
    work = [(s, t) for t in targets for s in sources()]
    # The largest first, so that the last does not run alone.
    order = sorted(range(len(work)), key=lambda i: -work[i][0].stat().st_size)
    with ThreadPoolExecutor(jobs) as pool:
        found = dict(
            zip(order, pool.map(lambda i: _compile(compiler, *work[i]), order), strict=True)
        )
    return [found[i] for i in range(len(work))]


def _compile(compiler: Compiler, source: Path, target: str) -> CodeObject:
    CACHE.mkdir(parents=True, exist_ok=True)
    stem = CACHE / f"{source.stem}-{target}-{_digest(compiler, source, target)}"
    code, facts = stem.with_suffix(".co"), stem.with_suffix(".json")
    if not (code.exists() and facts.exists()):
        part = code.with_suffix(f".{os.getpid()}.part")
        done = subprocess.run(
            compiler.command(source, target, part), capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise BuildError(f"{source.name} for {target}:\n{done.stderr}")
        read = _ptxas_resources if compiler.name == "cuda" else _clang_resources
        resources = [asdict(r) for r in read(done.stderr)]
        flat = 0 if compiler.name == "cuda" else _flat_accesses(compiler, part)
        facts.write_text(json.dumps({"resources": resources, "flat": flat}))
        part.replace(code)
    told = json.loads(facts.read_text())
    kernels = tuple(Resources(**r) for r in told["resources"])
    return CodeObject(source.stem, target, code, kernels, told["flat"])


def _digest(compiler: Compiler, source: Path, target: str) -> str:
    digest = hashlib.sha256()
    headers = [*(KERNELS / "hip").glob("*.h"), *(KERNELS / "include").rglob("*.h")]
    for path in [source, *sorted(headers), Path(__file__)]:
        digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    digest.update(f"{compiler.version} {target}".encode())
    return digest.hexdigest()[:16]


_REMARK = re.compile(r"remark:\s+([A-Za-z][A-Za-z ]*?)(?: \[[^\]]*\])?: (\S+) \[-R")
_CLANG_KEYS = {
    "VGPRs": "vgprs", "TotalSGPRs": "sgprs", "SGPRs": "sgprs", "AGPRs": "agprs",
    "ScratchSize": "scratch", "VGPRs Spill": "vgpr_spills", "SGPRs Spill": "sgpr_spills",
    "LDS Size": "lds", "Occupancy": "occupancy",
}  # fmt: skip


def _clang_resources(text: str) -> Iterator[Resources]:
    found: dict[str, dict[str, int]] = {}
    kernel = ""
    for line in text.splitlines():
        match = _REMARK.search(line)
        if not match:
            continue
        key, value = match[1], match[2]
        if key == "Function Name":
            kernel = value
            found[kernel] = {}
        elif key in _CLANG_KEYS and value.isdigit():
            found[kernel][_CLANG_KEYS[key]] = int(value)
    for name, values in sorted(found.items()):
        yield Resources(kernel=name, **{**dict.fromkeys(_CLANG_KEYS.values(), 0), **values})


def _ptxas_resources(text: str) -> Iterator[Resources]:
    kernel, spills = "", 0
    for line in text.splitlines():
        if match := re.search(r"Compiling entry function '(\w+)'", line):
            kernel = match[1]
        elif match := re.search(r"(\d+) bytes spill stores, (\d+) bytes spill loads", line):
            spills = int(match[1]) + int(match[2])
        elif match := re.search(r"Used (\d+) registers", line):
            shared = re.search(r"(\d+) bytes smem", line)
            lds = int(shared[1]) if shared else 0
            yield Resources(kernel, int(match[1]), 0, 0, 0, spills, 0, lds, 0)


def _flat_accesses(compiler: Compiler, code: Path) -> int:
    beside = Path(compiler.path).resolve().parent / "llvm-objdump"
    tool = str(beside) if beside.exists() else shutil.which("llvm-objdump-19")
    if not tool:
        raise BuildError("no llvm-objdump beside clang: install llvm-19")
    return len(re.findall(r"\bflat_(?:load|store)", _output([tool, "-d", str(code)])))


def write_embedding(objects: Sequence[CodeObject], out: Path) -> None:
    """Assembly whose table `fw_code_objects` a library's driver reads (module_api.cpp)."""
    lines = ['.section .note.GNU-stack,"",%progbits', ".section .rodata"]
    for i, code in enumerate(objects):
        lines += [
            f'fw_target_{i}: .asciz "{code.target}"',
            f'fw_source_{i}: .asciz "{code.source}"',
            ".balign 4096",
            f'fw_code_{i}: .incbin "{code.path}"',
            f"fw_code_end_{i}:",
        ]
    lines += [
        ".balign 8",
        ".globl fw_code_object_count",
        ".hidden fw_code_object_count",
        f"fw_code_object_count: .quad {len(objects)}",
        '.section .data.rel.ro,"aw",%progbits',
        ".balign 8",
        ".globl fw_code_objects",
        ".hidden fw_code_objects",
        "fw_code_objects:",
    ]
    for i in range(len(objects)):
        lines.append(
            f".quad fw_target_{i}, fw_source_{i}, fw_code_{i}, fw_code_end_{i} - fw_code_{i}"
        )
    text = "\n".join(lines) + "\n"
    out.mkdir(parents=True, exist_ok=True)
    path = out / "code_objects.S"
    if not path.exists() or path.read_text() != text:
        path.write_text(text)


def _output(command: Sequence[str]) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("vendor", choices=["amd", "cuda"])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--targets", default="", help="comma-separated; all of AMD's, or sm_90")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--probe", action="store_true", help="only say whether there is a compiler")
    options = parser.parse_args()
    try:
        compiler = find_clang() if options.vendor == "amd" else find_nvcc()
        if options.probe:
            return 0
        default = AMD_TARGETS if options.vendor == "amd" else ("sm_90",)
        targets = tuple(filter(None, options.targets.split(","))) or default
        write_embedding(compile_all(compiler, targets, options.jobs), options.out)
    except BuildError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
