"""The Debian packages that a cluster needs."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from testcluster.shell import ClusterError, output, run, say

# What each program comes from. Nothing recommended is installed: buildah or containerd would
# otherwise pull in a second container stack.
CLUSTER = {
    "containerd": "containerd",
    "runc": "runc",
    "ip": "iproute2",
    "iptables": "iptables",
    "nft": "nftables",
    "conntrack": "conntrack",
    "openssl": "openssl",
    "nsenter": "util-linux",
    "gcc": "gcc",
}
IMAGES = {"buildah": "buildah", "debootstrap": "debootstrap"}
# No program of their own to look for.
FILES = {
    "/usr/lib/cni/ptp": "containernetworking-plugins",
    "/usr/include/stdio.h": "libc6-dev",
    # A static and a dynamic one exist, which conflict: either will do.
    "/bin/busybox": "busybox-static",
}


def missing(*, images: bool = True) -> list[str]:
    """Packages that aren't installed, judged by what they bring."""
    programs = CLUSTER | (IMAGES if images else {})
    absent = [package for program, package in programs.items() if shutil.which(program) is None]
    return absent + [package for path, package in FILES.items() if not Path(path).exists()]


def install() -> None:
    """Install what is missing. Needs root and Debian."""
    packages = missing()
    if not packages:
        return
    if os.geteuid() or shutil.which("apt-get") is None:
        raise ClusterError(f"install these packages first: {' '.join(packages)}")
    say("installing", *packages)
    env = dict(os.environ, DEBIAN_FRONTEND="noninteractive")
    command = ["apt-get", "install", "-y", "-qq", "--no-install-recommends", *packages]
    if subprocess.run(command, env=env, stdout=subprocess.DEVNULL, check=False).returncode:
        # Most often the lists are missing or old.
        run("apt-get", "update", "-q", env=env)
        run(*command, env=env)
    still = missing()
    if still:
        raise ClusterError(f"still missing after the installation: {' '.join(still)}")


def require_go() -> str:
    """Go's version; a ClusterError says how to get it."""
    if shutil.which("go") is None:
        raise ClusterError("Go is missing: install Go 1.25 or newer (https://go.dev/dl)")
    return output("go", "version").strip()
