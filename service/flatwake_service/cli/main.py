"""`flatwake`: finds the commands that are installed, and imports the one that is called.

Commands join by the entry point group `flatwake.commands`; each is a typer app. Nothing heavy is
imported for `--help`, nor for another command's sake.
"""

from __future__ import annotations

import difflib
import sys
from collections.abc import Sequence
from importlib.metadata import EntryPoint, entry_points

from flatwake_service.version import package_version

GROUP = "flatwake.commands"

SUMMARIES = {
    "up": "Serve what a manifest describes, on this machine.",
    "chat": "Talk to a server in the terminal.",
    "serve": "Serve a model that is on this machine.",
    "fetch": "Fetch a model and print its digest.",
    "verify": "Compare tokens and logits with transformers', on your model.",
    "bench": "Measure speed, and the share of this machine's memory bandwidth.",
    "doctor": "Say what this machine can run, and what is missing.",
    "load": "Put a server under load and judge it.",
    "operator": "Run the Kubernetes operator.",
    "crd": "Print the CustomResourceDefinition.",
    "render": "Print what the operator would make of a manifest.",
}
"""In the order of `--help`; a command from elsewhere comes after them."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a command; the exit code, which is 2 for bad arguments."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    commands = {entry.name: entry for entry in entry_points(group=GROUP)}
    if not words or words[0] in ("--help", "-h", "help"):
        print(usage(commands))
        return 0 if words else 2
    name, *rest = words
    if name in ("--version", "-V", "version"):
        print(f"flatwake {package_version()}")
        return 0
    if name not in commands:
        return _fail(_unknown(name, commands), 2)
    return _run(commands[name], rest)


def usage(commands: Sequence[str] | dict[str, EntryPoint]) -> str:
    """The text of `flatwake --help`."""
    names = [name for name in SUMMARIES if name in commands]
    names += sorted(set(commands) - set(names))
    width = max(map(len, names), default=0)
    lines = [f"  {name:{width}}  {SUMMARIES.get(name, '')}".rstrip() for name in names]
    return "\n".join(
        [
            "Usage: flatwake COMMAND [OPTIONS]",
            "",
            "Serves language models on AMD GPUs in Kubernetes, and on anything at hand.",
            "",
            "Commands:",
            *lines,
            "",
            "flatwake COMMAND --help says more; flatwake --version prints the version.",
        ]
    )


def _run(entry: EntryPoint, arguments: list[str]) -> int:
    try:
        app = entry.load()
    except ModuleNotFoundError as error:
        return _fail(_not_installed(entry.name, error), 1)
    from typer.main import get_command

    from flatwake_service.errors import FlatwakeError
    from flatwake_service.manifest.errors import ManifestError

    try:
        get_command(app)(arguments, prog_name=f"flatwake {entry.name}")
    except FlatwakeError as error:
        return _fail(f"flatwake {entry.name}: {error}", error.exit_code)
    except ManifestError as error:
        return _fail(f"flatwake {entry.name}: {error}", 2)
    except _kernel_errors() as error:
        return _fail(f"flatwake {entry.name}: {error}", 1)
    except BrokenPipeError:
        # The reader of a pipe (`| head`) has seen enough.
        sys.stderr.close()
        return 0
    return 0


def _kernel_errors() -> tuple[type[Exception], ...]:
    """What the kernels' libraries raise, if the command has loaded any."""
    backend = sys.modules.get("flatwake_kernels.backend")
    return (backend.BackendUnavailable, backend.KernelError) if backend else ()


def _unknown(name: str, commands: dict[str, EntryPoint]) -> str:
    near = difflib.get_close_matches(name, commands, n=1, cutoff=0.5)
    hint = f"did you mean '{near[0]}'?" if near else "flatwake --help lists them."
    return f"flatwake: there is no command '{name}'; {hint}"


def _not_installed(name: str, error: ModuleNotFoundError) -> str:
    ours = (error.name or "").startswith("flatwake_")
    extra = {"operator": "operator", "crd": "operator", "render": "operator", "load": "loadtest"}
    cure = f"pip install 'flatwake[{extra.get(name, 'service')}]'"
    what = f"its code ({error.name})" if ours else f"the package '{error.name}'"
    return f"flatwake {name}: {what} isn't installed; {cure}"


def _fail(message: str, code: int) -> int:
    print(message, file=sys.stderr)
    return code


if __name__ == "__main__":
    sys.exit(main())
