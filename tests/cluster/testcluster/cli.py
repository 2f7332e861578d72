"""The command line of `cluster`."""

from __future__ import annotations

import argparse
import json
import os
import signal
from pathlib import Path
from typing import NoReturn

from testcluster import archive, binaries, images, layout, lifecycle, packages, release, supervisor
from testcluster import hub as model_hub
from testcluster.layout import Cluster
from testcluster.shell import ClusterError, say, search_path

HOW_TO = """\
{name} is up. In this shell:

  {script} exec {name} -- kubectl get nodes      any command in the cluster's network
  {script} exec {name} -- bash                   a shell there; kubectl and helm are in its PATH
  {script} load {name} IMAGE.tar                 an OCI archive into the node
  {script} status {name}                         components, memory, start-up times
  {script} down {name}                           stop it; nothing stays

The API listens on 127.0.0.1:6443 of that network only, so plain kubectl outside doesn't reach it.
A program started with `exec` is reached by pods at {node_ip}. There is no way out of the network:
download and build first.

export KUBECONFIG={kubeconfig}
"""
HOW_TO_API = """\
{name} is up: an API server without a node, on the loopback. Pods are stored but never run.

export KUBECONFIG={kubeconfig}
"""


def main(arguments: list[str] | None = None) -> None:
    os.environ["PATH"] = search_path()
    options = parser().parse_args(arguments)
    try:
        options.act(options)
    except ClusterError as error:
        say(error)
        raise SystemExit(1) from None
    except KeyboardInterrupt:
        raise SystemExit(130) from None


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(
        prog="cluster",
        description="A real one-node Kubernetes for tests, without Docker or systemd. Several can "
        "run side by side; they share only the binaries.",
        epilog="Work folder: $CLUSTER_DIR, else ${XDG_CACHE_HOME:-$HOME/.cache}/flatwake/cluster. "
        'NAME: 1 to 8 of a-z and 0-9; default $CLUSTER_NAME, else "k1".',
    )
    commands = top.add_subparsers(metavar="COMMAND", required=True)

    deps = commands.add_parser("deps", help="install the Debian packages that it needs")
    deps.set_defaults(act=lambda _: packages.install())
    build = commands.add_parser("build", help="compile the binaries and make the small images")
    build.set_defaults(act=lambda _: binaries.build())

    up = commands.add_parser("up", help="start a cluster and wait until it can run pods")
    _name(up)
    up.add_argument("--api-only", action="store_true",
                    help="only etcd and an API server, on the loopback; no root")  # fmt: skip
    up.add_argument("--controllers", action="store_true",
                    help="with --api-only: the controller manager too")  # fmt: skip
    up.add_argument("--owner", type=int, metavar="PID",
                    help="end the cluster when this process has ended")  # fmt: skip
    up.set_defaults(act=_up)

    down = commands.add_parser("down", help="stop a cluster and remove everything that it made")
    _name(down)
    down.set_defaults(act=_down)
    status = commands.add_parser("status", help="components, their memory, start-up times")
    _name(status)
    status.set_defaults(act=_status)
    run = commands.add_parser("exec", help="run a command in the cluster's network",
                              usage="cluster exec [NAME] -- COMMAND...")  # fmt: skip
    run.add_argument("words", nargs=argparse.REMAINDER)
    run.set_defaults(act=_exec)
    load = commands.add_parser("load", help="import OCI archives into the node")
    load.add_argument("words", nargs="+", metavar="[NAME] ARCHIVE")
    load.set_defaults(act=_load)

    install = commands.add_parser("install", help="install the chart with images built here")
    _name(install)
    install.set_defaults(act=_install)

    hub = commands.add_parser("hub", help="serve SmolLM2 at the node's address until interrupted")
    _name(hub)
    hub.set_defaults(act=_hub)

    pack = commands.add_parser("mkimage", help="make an OCI archive out of a folder")
    pack.add_argument("target", type=Path)
    pack.add_argument("reference", help="localhost/NAME:TAG")
    pack.add_argument("root", type=Path)
    pack.add_argument("--entrypoint", type=json.loads, default=[], metavar="JSON")
    pack.add_argument("--cmd", type=json.loads, default=["/bin/sh"], metavar="JSON")
    pack.add_argument("--env", action="append", default=[], metavar="NAME=VALUE")
    pack.set_defaults(act=_pack)
    images.add_commands(commands)

    inner = commands.add_parser("_supervise")
    inner.add_argument("name")
    inner.add_argument("--controllers", action="store_true")
    inner.add_argument("--owner-fd", type=int)
    inner.set_defaults(act=_supervise)
    return top


def _name(command: argparse.ArgumentParser) -> None:
    command.add_argument("name", nargs="?", default=os.environ.get("CLUSTER_NAME", "k1"))


def _up(options: argparse.Namespace) -> None:
    cluster = Cluster(options.name)
    lifecycle.up(
        cluster, api_only=options.api_only, controllers=options.controllers, owner=options.owner
    )
    text = HOW_TO_API if cluster.api_only else HOW_TO
    script = os.path.relpath(layout.SOURCES / "cluster")
    print(
        text.format(
            name=cluster.name,
            script=script,
            node_ip=layout.NODE_IP,
            kubeconfig=cluster.kubeconfig,
        ),
        end="",
    )


def _down(options: argparse.Namespace) -> None:
    cluster = Cluster(options.name)
    say(f"{cluster.name} is gone" if lifecycle.down(cluster) else f"{cluster.name} was not up")


def _status(options: argparse.Namespace) -> None:
    for line in lifecycle.status(Cluster(options.name)):
        print(line)


def _exec(options: argparse.Namespace) -> NoReturn:
    words = options.words
    if "--" not in words[:2] or words[-1] == "--":
        raise ClusterError("usage: cluster exec [NAME] -- COMMAND...")
    cut = words.index("--")
    name = words[0] if cut else os.environ.get("CLUSTER_NAME", "k1")
    lifecycle.execute(Cluster(name), words[cut + 1 :])


def _load(options: argparse.Namespace) -> None:
    words = options.words
    named = len(words) > 1 and not os.path.exists(words[0])
    name = words.pop(0) if named else os.environ.get("CLUSTER_NAME", "k1")
    lifecycle.load(Cluster(name), [Path(word) for word in words])


def _install(options: argparse.Namespace) -> None:
    cluster = Cluster(options.name)
    cluster.require_running()
    packages.install()
    print(release.install(cluster, release.load_images(cluster)))


def _hub(options: argparse.Namespace) -> None:
    cluster = Cluster(options.name)
    cluster.require_running()
    with model_hub.serving(cluster, {model_hub.FILE: model_hub.smollm2()}) as hub:
        print(f"source: {hub.url(model_hub.FILE)}\ndigest: sha256:{model_hub.DIGEST}", flush=True)
        signal.pause()


def _pack(options: argparse.Namespace) -> None:
    archive.make_archive(
        options.target,
        options.reference,
        options.root,
        options.entrypoint,
        options.cmd,
        options.env,
    )


def _supervise(options: argparse.Namespace) -> NoReturn:
    cluster = Cluster(options.name)
    if cluster.api_only:
        supervisor.supervise_api(cluster, options.owner_fd, controllers=options.controllers)
    supervisor.supervise(cluster, options.owner_fd)
