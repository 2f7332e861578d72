"""OCI archives made from folders by Python alone, and the two smallest images."""

from __future__ import annotations

import hashlib
import io
import json
import os
import re
import shutil
import subprocess
import tarfile
from collections.abc import Sequence
from pathlib import Path

from testcluster import layout
from testcluster.shell import output, run

OCI = "application/vnd.oci.image."
PATH = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

PAUSE_C = r"""
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>
static void stop(int s) { _exit(0); }
static void reap(int s) { while (waitpid(-1, 0, WNOHANG) > 0); }
int main(void) {
    signal(SIGINT, stop); signal(SIGTERM, stop); signal(SIGCHLD, reap);
    for (;;) pause();
}
"""


def make_archive(
    target: Path,
    reference: str,
    root: Path,
    entrypoint: Sequence[str] = (),
    command: Sequence[str] = (),
    environment: Sequence[str] = (),
) -> None:
    """Write a one-layer OCI archive of the folder `root`; the same input gives the same bytes.

    The reference needs its `localhost/` and a tag that isn't `latest`: without the first
    containerd looks for another name, and with the second the kubelet always pulls.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    layer = target.with_name(target.name + ".layer")
    with tarfile.open(layer, "w") as tar:
        for name in sorted(os.listdir(root)):
            tar.add(root / name, name, filter=_reproducible)
    with layer.open("rb") as file:
        layer_digest = "sha256:" + hashlib.file_digest(file, "sha256").hexdigest()
    config = json.dumps(
        {
            "architecture": "amd64",
            "os": "linux",
            "config": {
                "Entrypoint": list(entrypoint),
                "Cmd": list(command),
                "Env": [PATH, *environment],
            },
            "rootfs": {"type": "layers", "diff_ids": [layer_digest]},
            # buildah counts the layers here when it builds on the image.
            "history": [{"created_by": "a folder"}],
        }
    ).encode()
    manifest = json.dumps(
        {
            "schemaVersion": 2,
            "mediaType": OCI + "manifest.v1+json",
            "config": _descriptor("config.v1+json", config),
            "layers": [
                {
                    "mediaType": OCI + "layer.v1.tar",
                    "digest": layer_digest,
                    "size": layer.stat().st_size,
                }
            ],
        }
    ).encode()
    annotations = {
        # containerd reads the first for the whole name.
        "io.containerd.image.name": reference,
        "org.opencontainers.image.ref.name": reference.rsplit(":", 1)[-1],
    }
    index = json.dumps(
        {
            "schemaVersion": 2,
            "manifests": [_descriptor("manifest.v1+json", manifest) | {"annotations": annotations}],
        }
    ).encode()
    part = target.with_name(target.name + ".part")
    with tarfile.open(part, "w") as tar:
        _add(tar, "oci-layout", b'{"imageLayoutVersion":"1.0.0"}')
        _add(tar, "index.json", index)
        for blob in (config, manifest):
            _add(tar, "blobs/sha256/" + hashlib.sha256(blob).hexdigest(), blob)
        tar.add(layer, "blobs/sha256/" + layer_digest[7:], filter=_reproducible)
    layer.unlink()
    part.replace(target)


def _descriptor(kind: str, blob: bytes) -> dict[str, object]:
    digest = "sha256:" + hashlib.sha256(blob).hexdigest()
    return {"mediaType": OCI + kind, "digest": digest, "size": len(blob)}


def _add(tar: tarfile.TarFile, name: str, data: bytes) -> None:
    info = tarfile.TarInfo(name)
    info.size = len(data)
    tar.addfile(info, io.BytesIO(data))


def _reproducible(info: tarfile.TarInfo) -> tarfile.TarInfo:
    info.uid = info.gid = info.mtime = 0
    info.uname = info.gname = ""
    return info


def make_small_images() -> None:
    """The sandbox's pause and a busybox, both without any download."""
    images = layout.archives()
    if all((images / f"{name}.tar").exists() for name in ("pause", "busybox")):
        return
    scratch = images / "scratch"
    shutil.rmtree(scratch, ignore_errors=True)
    _pause(scratch / "pause", images / "pause.tar")
    _busybox(scratch / "busybox", images / "busybox.tar")
    shutil.rmtree(scratch)


def _pause(root: Path, target: Path) -> None:
    root.mkdir(parents=True)
    source = root.with_suffix(".c")
    source.write_text(PAUSE_C)
    run("gcc", "-Os", "-static", "-s", "-o", root / "pause", source)
    make_archive(target, layout.PAUSE, root, ["/pause"])


def _busybox(root: Path, target: Path) -> None:
    for folder in ("bin", "tmp", "etc", "root"):
        (root / folder).mkdir(parents=True)
    shutil.copy("/bin/busybox", root / "bin/busybox")
    # Debian's plain busybox is dynamic; ldd fails on the static one.
    linked = subprocess.run(["ldd", "/bin/busybox"], capture_output=True, text=True, check=False)
    for library in re.findall(r"(/\S+)", linked.stdout):
        if os.path.exists(library):
            copy = root / library.lstrip("/")
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(library, copy)
    for applet in output("/bin/busybox", "--list").split():
        if applet != "busybox":
            (root / "bin" / applet).symlink_to("busybox")
    (root / "tmp").chmod(0o1777)
    (root / "etc/passwd").write_text("root:x:0:0:root:/root:/bin/sh\n")
    (root / "etc/group").write_text("root:x:0:\n")
    make_archive(target, layout.BUSYBOX, root, command=["/bin/sh"])
