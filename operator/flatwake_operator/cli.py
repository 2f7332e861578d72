"""The operator's commands: `flatwake crd`, `flatwake render` and `flatwake operator`."""

from pathlib import Path
from typing import Annotated

import typer

crd = typer.Typer(add_completion=False, help="Print the CustomResourceDefinition.")


@crd.command()
def print_crd() -> None:
    """Print the CustomResourceDefinition, for `kubectl apply --server-side -f -`."""
    from flatwake_operator import generated

    typer.echo(generated.crd_text(), nl=False)


render = typer.Typer(add_completion=False, help="Print all objects that a manifest would become.")


@render.command()
def print_children(
    path: Annotated[Path, typer.Argument(help="The manifest.")],
    backend: Annotated[str, typer.Option(help="What Auto becomes: Hip or Cpu.")] = "Hip",
    image: Annotated[str, typer.Option(help="The image where the manifest names none.")] = (
        "flatwake-service:unset"
    ),
    namespace: Annotated[str, typer.Option("-n", "--namespace")] = "default",
) -> None:
    """Print all objects that a manifest would become, without a cluster."""
    from flatwake_service.manifest import Backend, ManifestError, load

    from flatwake_operator import render as rendering
    from flatwake_operator.settings import Context, Settings

    try:
        documents = load(path)
        chosen = Backend(backend.capitalize())
    except ManifestError as error:
        typer.echo(f"flatwake render: {error}", err=True)
        raise typer.Exit(2) from error
    except ValueError as error:
        typer.echo(f"flatwake render: --backend {backend}: write Hip or Cpu", err=True)
        raise typer.Exit(2) from error
    server = documents.server
    if server.metadata.namespace is None:
        placed = server.metadata.model_copy(update={"namespace": namespace})
        server = server.model_copy(update={"metadata": placed})
    settings = Settings(images={chosen: image})
    context = Context(server, settings, rendering.decide(server, settings, chosen))
    config = {
        f"{name}/{key}": value.decode(errors="replace")
        for name, keys in documents.config_maps.items()
        for key, value in keys.items()
        if server.spec.model.chat_template
        and (server.spec.model.chat_template.name, server.spec.model.chat_template.key)
        == (name, key)
    }
    typer.echo(rendering.text(rendering.children(context, dict(config))), nl=False)
