"""The service image with pretended AMD devices: production's but for a library of the test's own.

What is in that library, and what stays production's, is told in device/pretended.c.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from pathlib import Path

from testcluster import images, layout
from testcluster.shell import locked, run, say

FOLDER = layout.SOURCES / "device"
REPOSITORY = "localhost/flatwake-pretended"


def tag() -> str:
    """Changes with the service image and with what is laid over it."""
    digest = hashlib.sha256(images.source_digest().encode())
    for path in sorted(FOLDER.iterdir()):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:12]


def build() -> tuple[str, Path]:
    """The image's reference and archive, made over the CPU image unless that was done before."""
    images.build(images.CPU)
    reference = f"{REPOSITORY}:{tag()}"
    target = layout.archives() / f"flatwake-pretended-{tag()}.tar"
    with locked(layout.work_folder() / "images.lock"):
        if not target.exists():
            say(f"building {reference}")
            with tempfile.TemporaryDirectory(dir=layout.archives()) as scratch:
                _build(Path(scratch), reference, target)
            images.forget_old(REPOSITORY, "flatwake-pretended")
    return reference, target


def _build(scratch: Path, reference: str, target: Path) -> None:
    _compile(scratch)
    shutil.copy(FOLDER / "Dockerfile", scratch)
    images.ensure_stored(images.CPU)
    words = ["bud", "--quiet", "--isolation", "chroot", "--tag", reference]
    words += ["--build-arg", f"SERVICE={images.CPU.reference()}", str(scratch)]
    run(*images.buildah(*words))
    images.save(reference, target)


def _compile(scratch: Path) -> None:
    """libflatwake_hip.so, linked against the image's libflatwake_cpu.so by its name alone."""
    empty = scratch / "empty.c"
    empty.write_text("")
    cpu = scratch / "libflatwake_cpu.so"
    run("gcc", "-shared", f"-Wl,-soname,{cpu.name}", "-o", cpu, empty)
    run(
        "gcc", "-O2", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC",
        f"-I{layout.REPOSITORY}/kernels/include", "-o", scratch / "libflatwake_hip.so",
        FOLDER / "pretended.c", "-Wl,--no-as-needed", f"-L{scratch}", f"-l:{cpu.name}",
        "-Wl,-rpath,$ORIGIN",
    )  # fmt: skip
    os.remove(cpu)
    empty.unlink()
