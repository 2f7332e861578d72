"""The operator's commands: `flatwake crd`, `flatwake render` and `flatwake operator`."""

import typer

crd = typer.Typer(add_completion=False, help="Print the CustomResourceDefinition.")


@crd.command()
def print_crd() -> None:
    """Print the CustomResourceDefinition, for `kubectl apply --server-side -f -`."""
    from flatwake_operator import generated

    typer.echo(generated.crd_text(), nl=False)
