"""The operator's commands: `flatwake crd`, `flatwake render` and `flatwake operator`."""

import sys
from pathlib import Path
from typing import Annotated

import typer

NO_IMAGE = "flatwake-service:unset"

crd = typer.Typer(
    add_completion=False, help="Print the CustomResourceDefinition.", rich_markup_mode="markdown"
)


@crd.command()
def print_crd() -> None:
    """Print the CustomResourceDefinition, for `kubectl apply --server-side -f -`."""
    from flatwake_operator import generated

    typer.echo(generated.crd_text(), nl=False)


render = typer.Typer(
    add_completion=False,
    help="Print all objects that a manifest would become.",
    rich_markup_mode="markdown",
)


@render.command()
def print_children(
    path: Annotated[
        Path, typer.Argument(metavar="FILE", help="The manifest; - is the standard input.")
    ],
    backend: Annotated[
        str, typer.Option(metavar="Hip|Cpu", help="What backend Auto becomes.")
    ] = "Hip",
    image: Annotated[
        str, typer.Option(metavar="IMAGE", help="The image where the manifest names none.")
    ] = NO_IMAGE,
    namespace: Annotated[
        str,
        typer.Option(
            "-n", "--namespace", metavar="NAME", help="Where they go if the manifest doesn't say."
        ),
    ] = "default",
    without: Annotated[
        list[str] | None,
        typer.Option(metavar="KIND", help="A kind that your cluster doesn't serve, repeated."),
    ] = None,
) -> None:
    """Print all objects that a manifest would become, without a cluster.

    `kubectl apply --server-side -f -` takes them, where no operator is wanted. PodMonitor and
    InferencePool are other projects' kinds: leave them out with --without where those aren't
    installed, as the operator does.
    """
    from flatwake_service.manifest import Backend, ManifestError, load, loads

    from flatwake_operator import kinds
    from flatwake_operator import render as rendering
    from flatwake_operator.settings import Context, Settings

    try:
        documents = loads(sys.stdin.read()) if str(path) == "-" else load(path)
    except ManifestError as error:
        typer.echo(f"flatwake render: {error}", err=True)
        raise typer.Exit(2) from error
    chosen = {"hip": Backend.HIP, "cpu": Backend.CPU}.get(backend.lower())
    if chosen is None:
        typer.echo(f"flatwake render: --backend {backend}: write Hip or Cpu", err=True)
        raise typer.Exit(2)
    names = [kind.name for kind in kinds.CHILDREN]
    for name in without or []:
        if name not in names:
            typer.echo(
                f"flatwake render: --without {name}: it is none of {', '.join(names)}", err=True
            )
            raise typer.Exit(2)
    apis = [kind for kind in kinds.CHILDREN if kind.name not in (without or [])]
    server = documents.server
    if server.spec.image is None and image == NO_IMAGE:
        typer.echo("flatwake render: no image is named: pass --image IMAGE", err=True)
    if server.metadata.namespace is None:
        placed = server.metadata.model_copy(update={"namespace": namespace})
        server = server.model_copy(update={"metadata": placed})
    settings = Settings(images=dict.fromkeys((Backend.HIP, Backend.CPU), image))
    context = Context(server, settings, rendering.decide(server, settings, chosen))
    config = {
        f"{name}/{key}": value.decode(errors="replace")
        for name, keys in documents.config_maps.items()
        for key, value in keys.items()
        if server.spec.model.chat_template
        and (server.spec.model.chat_template.name, server.spec.model.chat_template.key)
        == (name, key)
    }
    typer.echo(rendering.text(rendering.children(context, dict(config), apis)), nl=False)


operator = typer.Typer(
    add_completion=False,
    help="Run the operator, in a pod or on a machine.",
    rich_markup_mode="markdown",
)


@operator.command()
def run_operator(
    image_hip: Annotated[str, typer.Option(help="The service image for AMD GPUs.")] = "",
    image_cpu: Annotated[str, typer.Option(help="The service image for the CPU.")] = "",
    render_group: Annotated[
        list[int] | None, typer.Option(help="Group ids that may open the devices, repeated.")
    ] = None,
    watch_namespace: Annotated[
        list[str] | None, typer.Option(help="A namespace to look after, repeated; all if none.")
    ] = None,
    namespace: Annotated[
        str, typer.Option(help="Where the operator itself and its Lease are.")
    ] = "flatwake-system",
    label: Annotated[
        list[str] | None, typer.Option(help="key=value of the operator's own pods, repeated.")
    ] = None,
    lease: Annotated[str, typer.Option(help="The Lease's name.")] = "flatwake-operator",
    identity: Annotated[str, typer.Option(help="This process's name in the Lease.")] = "",
    elect: Annotated[
        bool, typer.Option("--elect/--no-elect", help="Take turns with other processes by a Lease.")
    ] = True,
    port: Annotated[int, typer.Option(help="/healthz, /readyz and /metrics.")] = 8080,
    resync: Annotated[str, typer.Option(help="How often everything is listed anew.")] = "60s",
    log_level: Annotated[str, typer.Option(help="debug, info, warning or error.")] = "info",
) -> None:
    """Run the operator until SIGTERM."""
    import asyncio
    import logging
    import socket
    import uuid

    from flatwake_service.manifest import Backend, defaults, seconds

    from flatwake_operator.errors import LeaseLostError
    from flatwake_operator.run import Options, run
    from flatwake_operator.settings import Settings
    from flatwake_operator.startup import CrdError

    logging.basicConfig(
        level=log_level.upper(), format="%(asctime)s %(levelname)s %(name)s: %(message)s"
    )
    for chatty in ("kopf", "httpx", "httpcore"):
        logging.getLogger(chatty).setLevel("WARNING")
    own = dict(pair.split("=", 1) for pair in label or ["app.kubernetes.io/name=flatwake-operator"])
    images = {Backend.HIP: image_hip, Backend.CPU: image_cpu}
    options = Options(
        settings=Settings(
            images={backend: image for backend, image in images.items() if image},
            render_groups=tuple(render_group or defaults.RENDER_GROUPS),
            namespace=namespace,
            labels=own,
        ),
        identity=identity or f"{socket.gethostname()}-{uuid.uuid4().hex[:8]}",
        namespaces=list(watch_namespace or []),
        lease=lease if elect else None,
        port=port,
        resync_seconds=seconds(resync),
    )
    try:
        asyncio.run(run(options))
    except CrdError as error:
        typer.echo(f"flatwake operator: {error}", err=True)
        raise typer.Exit(1) from error
    except ExceptionGroup as group:
        lost = group.subgroup(LeaseLostError)
        if lost is None:
            raise
        found: BaseException = lost
        while isinstance(found, BaseExceptionGroup):
            found = found.exceptions[0]
        typer.echo(f"flatwake operator: {found}", err=True)
        raise typer.Exit(1) from group
