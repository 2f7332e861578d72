"""The tool itself, without a whole cluster."""

from __future__ import annotations

import json
import subprocess
import sys
import tarfile
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from testcluster import archive, components, images, layout, lifecycle, packages, session
from testcluster.layout import Cluster
from testcluster.shell import ClusterError
from testcluster.supervisor import Api

SCRIPT = layout.SOURCES / "cluster"


def tool(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(SCRIPT), *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


@pytest.mark.parametrize("name", ["", "Big", "a-b", "ninechars"])
def test_a_name_that_cannot_be_used_is_refused_by_name(name: str) -> None:
    with pytest.raises(ClusterError, match=f"bad name '{name}'"):
        Cluster(name)


def test_a_work_folder_too_deep_for_sockets_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CLUSTER_DIR", "/" + "x" * 90)
    with pytest.raises(ClusterError, match="set CLUSTER_DIR"):
        Cluster("a")


def test_a_command_for_a_cluster_that_is_down_says_how_to_start_it() -> None:
    done = tool("status", "nobody")
    assert done.returncode == 1
    assert done.stderr == "cluster: nobody is not up: `cluster up nobody` starts it\n"


def test_help_names_every_command() -> None:
    done = tool("--help")
    assert done.returncode == 0
    for command in ("build", "up", "down", "status", "exec", "load", "images"):
        assert f"\n    {command} " in done.stdout


def test_an_archive_has_the_same_bytes_each_time(tmp_path: Path) -> None:
    root = tmp_path / "root"
    (root / "bin").mkdir(parents=True)
    (root / "bin/tool").write_text("#!/bin/sh\n")
    for name in ("a", "b"):
        archive.make_archive(tmp_path / f"{name}.tar", "localhost/x:1", root, ["/bin/tool"])
    assert (tmp_path / "a.tar").read_bytes() == (tmp_path / "b.tar").read_bytes()
    with tarfile.open(tmp_path / "a.tar") as tar:
        index = tar.extractfile("index.json")
        assert index is not None
        annotations = json.load(index)["manifests"][0]["annotations"]
    assert annotations["io.containerd.image.name"] == "localhost/x:1"


def test_images_are_made_of_sources_alone() -> None:
    names = {str(path.relative_to(layout.REPOSITORY)) for path in images.source_files()}
    assert {"Dockerfile", "pyproject.toml"} <= names
    assert not [name for name in names if "__pycache__" in name or "/native/" in name]


def test_ports_that_were_chosen_are_free_and_differ() -> None:
    ports = components.Ports.free()
    assert len({ports.api, ports.etcd, ports.etcd_peer}) == 3


def test_missing_packages_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packages.shutil, "which", lambda _: None)
    assert {"containerd", "runc", "buildah", "debootstrap"} <= set(packages.missing())
    assert "buildah" not in packages.missing(images=False)


@pytest.mark.cluster
@pytest.mark.usefixtures("binaries")
def test_an_api_without_a_node_stores_and_ends_with_its_block() -> None:
    with session.temporary("u", api_only=True) as cluster:
        api = Api(cluster)
        names = [
            item["metadata"]["name"] for item in json.loads(api.get("/api/v1/namespaces"))["items"]
        ]
        assert "default" in names
        folder = cluster.run
    assert not folder.exists()
    with pytest.raises(urllib.error.URLError):
        api.get("/readyz")


@pytest.mark.cluster
@pytest.mark.usefixtures("binaries")
def test_a_cluster_ends_with_the_process_that_it_was_made_for() -> None:
    owner = subprocess.Popen(["sleep", "120"])
    try:
        cluster = Cluster(f"o{owner.pid}")
        done = tool("up", "--api-only", "--owner", str(owner.pid), cluster.name)
        assert done.returncode == 0, done.stderr
        holder = cluster.holder()
        assert holder is not None
    finally:
        owner.kill()
        owner.wait()
    lifecycle.wait_for_end(holder)
    assert cluster.holder() is None
    assert lifecycle.down(cluster)
