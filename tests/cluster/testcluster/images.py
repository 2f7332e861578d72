"""The project's images, built by the Dockerfile and cached by what they are made of.

Where no registry of images is reached the base is a Debian that debootstrap makes here.
"""

from __future__ import annotations

import argparse
import functools
import hashlib
import os
import re
import shutil
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from testcluster import archive, layout, packages
from testcluster.shell import ClusterError, locked, run, say

SUITE = "bookworm"
# What the Dockerfile's last stages install, so that they find it there.
BASE_PACKAGES = "ca-certificates,libstdc++6,python3"
BASE_REFERENCE = "localhost/flatwake-debian:1"
# Documentation and translations; the base's own package lists are of the day it was made.
NOT_NEEDED = ("var/cache/apt/archives", "var/lib/apt/lists", "usr/share/doc", "usr/share/man",
              "usr/share/locale", "usr/share/info", "var/log")  # fmt: skip
CERTIFICATES = Path("/etc/ssl/certs/ca-certificates.crt")
SOURCES = ("Dockerfile", ".dockerignore", ".ci/lock/images", "pyproject.toml", "README.md",
           "LICENSE", "kernels", "loadtest", "operator", "service")  # fmt: skip
NOT_SOURCES = {"__pycache__", "native", "build"}
KEPT_ARCHIVES = 3
STORAGE_LIMIT = 12_000_000_000


# What buildah says when a build that was killed has left layers that no later one can read.
BROKEN = re.compile(r"layer not known|image not known|locating item named|readlink .*/overlay/")


class StoreBroken(ClusterError):
    """The image store can't be read: it has to be made anew."""


@dataclass(frozen=True)
class Image:
    """One target of the Dockerfile."""

    name: str
    target: str
    arguments: tuple[str, ...] = ()

    @property
    def repository(self) -> str:
        return f"localhost/flatwake-{self.name}"

    def reference(self) -> str:
        return f"{self.repository}:{source_digest()}"

    def archive(self) -> Path:
        return layout.archives() / f"flatwake-{self.name}-{source_digest()}.tar"


OPERATOR = Image("operator", "operator")
CPU = Image("cpu", "service")
HIP = Image("hip", "service", ("HIP=on",))
LOAD = Image("load", "load")
ALL = {image.name: image for image in (OPERATOR, CPU, HIP, LOAD)}


def source_files() -> Iterator[Path]:
    """Every file that an image is made of, in a fixed order."""
    for name in SOURCES:
        path = layout.REPOSITORY / name
        if path.is_file():
            yield path
        for folder, folders, files in os.walk(path):
            folders[:] = sorted(set(folders) - NOT_SOURCES)
            for file in sorted(files):
                if not file.endswith((".pyc", ".so")):
                    yield Path(folder) / file


@functools.cache
def source_digest() -> str:
    """Twelve hexadecimal digits that change with any of the sources.

    Taken once: a file that changes while an image is built must not rename it. CLUSTER_IMAGES
    names the images of an earlier digest, for work on the tests while the sources change.
    """
    if given := os.environ.get("CLUSTER_IMAGES"):
        return given
    digest = hashlib.sha256()
    for path in source_files():
        digest.update(f"{path.relative_to(layout.REPOSITORY)}\0".encode())
        digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()[:12]


def buildah(*words: str | Path) -> list[str]:
    """A command line whose storage is our own, so that nothing of the user's is touched."""
    storage = layout.work_folder() / "buildah"
    driver = os.environ.get("CLUSTER_STORAGE_DRIVER", "overlay")
    return ["buildah", "--storage-driver", driver, "--root", str(storage / "root"),
            "--runroot", str(storage / "run"), *map(str, words)]  # fmt: skip


def has_image(reference: str) -> bool:
    words = buildah("inspect", "--type", "image", reference)
    return subprocess.run(words, capture_output=True, check=False).returncode == 0


def make_base() -> str:
    """The name of a small Debian with Python in our storage; 90 s when it isn't there yet."""
    if has_image(BASE_REFERENCE):
        return BASE_REFERENCE
    root = layout.work_folder() / "debian"
    tar = layout.archives() / "debian.tar"
    if not tar.exists():
        say(f"making a Debian {SUITE} as the images' base")
        shutil.rmtree(root, ignore_errors=True)
        root.parent.mkdir(parents=True, exist_ok=True)
        mirror = os.environ.get("DEBIAN_MIRROR", "").split()  # debootstrap knows Debian's own
        run("nice", "-n", "10", "debootstrap", "--variant=minbase",
            f"--include={BASE_PACKAGES}", SUITE, root, *mirror)  # fmt: skip
        for name in NOT_NEEDED:
            _empty(root / name)
        archive.make_archive(tar, BASE_REFERENCE, root, command=["/bin/sh"])
        shutil.rmtree(root)
    run(*buildah("pull", "--quiet", f"oci-archive:{tar}"))
    return BASE_REFERENCE


def _empty(folder: Path) -> None:
    for path in folder.iterdir() if folder.is_dir() else ():
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()


def build(image: Image, *, base: str | None = None) -> Path:
    """The image's archive, built unless these very sources were built before."""
    target = image.archive()
    if target.exists():
        return target  # whatever another process is building
    with locked(layout.work_folder() / "images.lock"):
        if not target.exists():
            if _storage_bytes() > STORAGE_LIMIT:
                drop_storage()
            try:
                _build(image, base or make_base(), target)
            except StoreBroken as error:
                say(f"{error}; once more, from the beginning")
                drop_storage()
                _build(image, base or make_base(), target)
    return target


def _storage_bytes() -> int:
    words = ["du", "-s", "--block-size=1", str(layout.work_folder() / "buildah")]
    # Files may go meanwhile: du then complains, and prints the sum all the same.
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    return int(done.stdout.split()[0]) if done.stdout else 0


def drop_storage() -> None:
    """Forget all layers. buildah does it, as a layer may be mounted."""
    for words in (["rm", "--all"], ["rmi", "--all", "--force"]):
        subprocess.run(buildah(*words), capture_output=True, check=False)
    shutil.rmtree(layout.work_folder() / "buildah", ignore_errors=True)


def _build(image: Image, base: str, target: Path) -> None:
    reference, began = image.reference(), time.monotonic()
    say(f"building {reference}")
    words = ["bud", "--quiet", "--isolation", "chroot", "--layers", "--format", "oci"]
    words += ["--target", image.target, "--tag", reference, "--build-arg", f"BASE={base}"]
    for argument in image.arguments:
        words += ["--build-arg", argument]
    words += ["--build-arg", f"REVISION={_revision()}"]
    if CERTIFICATES.exists():
        words += ["--secret", f"id=ca,src={CERTIFICATES}"]
    _run_build(["nice", "-n", "10", *buildah(*words, "--file", "Dockerfile", ".")])
    save(reference, target)
    forget_old(image.repository, f"flatwake-{image.name}")
    size = target.stat().st_size / 1e6
    say(f"{reference}: {size:.0f} MB in {time.monotonic() - began:.0f} s")


def _run_build(words: list[str]) -> None:
    done = subprocess.run(words, capture_output=True, text=True, cwd=layout.REPOSITORY, check=False)
    if done.returncode:
        kind = StoreBroken if BROKEN.search(done.stderr) else ClusterError
        raise kind(f"the image can't be built:\n{done.stderr.strip()[-4000:]}")


def _revision() -> str:
    words = ["git", "-C", str(layout.REPOSITORY), "rev-parse", "HEAD"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    return done.stdout.strip() or "unknown"


def save(reference: str, target: Path) -> None:
    """Write an image of the store as an archive."""
    target.parent.mkdir(parents=True, exist_ok=True)
    part = target.with_suffix(".part")
    part.unlink(missing_ok=True)
    # docker-archive, as its layers aren't compressed: minutes on a busy machine.
    run(*buildah("push", "--quiet", reference, f"docker-archive:{part}:{reference}"))
    part.replace(target)


def ensure_stored(image: Image) -> None:
    """The store has the image; its archive is kept also while the store is made anew."""
    if not has_image(image.reference()):
        run(*buildah("pull", "--quiet", f"docker-archive:{image.archive()}"))


def forget_old(repository: str, stem: str) -> None:
    """Remove all but the newest archives of an image, and their names in the store."""
    found = layout.archives().glob(f"{stem}-*.tar")
    newest = sorted(found, key=lambda path: path.stat().st_mtime, reverse=True)
    for path in newest[KEPT_ARCHIVES:]:
        path.unlink()
        name = f"{repository}:{path.stem.rsplit('-', 1)[-1]}"
        subprocess.run(buildah("rmi", name), capture_output=True, check=False)


def add_commands(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    make = commands.add_parser("images", help="build the project's images into archives")
    make.add_argument("names", nargs="*", choices=[*ALL, []], help="default: operator cpu")
    make.add_argument("--base", help="an image from a registry instead of a Debian made here")
    make.add_argument("--push", metavar="REGISTRY", help="and push them; prints the helm line")
    make.set_defaults(act=_images)


def _images(options: argparse.Namespace) -> None:
    if os.geteuid():
        raise ClusterError("building images needs root")
    packages.install()
    chosen = [ALL[name] for name in options.names or ["operator", "cpu"]]
    for image in chosen:
        path = build(image, base=options.base)
        print(f"{image.reference()} {path}")
    if options.push:
        _push(chosen, options.push.rstrip("/"))
    else:
        print("where nodes have taken these archives in (ctr -n k8s.io images import, say):")
        print(_helm_line({image.name: image.reference() for image in chosen}))


def _push(chosen: list[Image], registry: str) -> None:
    references = {}
    for image in chosen:
        name = image.reference().replace("localhost", registry, 1)
        say(f"pushing {name}")
        ensure_stored(image)
        run(*buildah("push", image.reference(), f"docker://{name}"))
        references[image.name] = name
    print(_helm_line(references))


def _helm_line(references: dict[str, str]) -> str:
    """What installs the chart with these images, by their names in its values."""
    words = [
        "helm upgrade --install flatwake charts/flatwake",
        "-n flatwake-system --create-namespace --wait",
    ]
    words += [f"--set images.{name}={reference}" for name, reference in references.items()]
    return " \\\n  ".join(words)
