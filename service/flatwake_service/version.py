"""The version of the package that is installed."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version


def package_version() -> str:
    """`0` in a checkout that was never installed."""
    try:
        return version("flatwake")
    except PackageNotFoundError:
        return "0"
