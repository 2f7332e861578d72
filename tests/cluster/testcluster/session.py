"""Clusters that end with the test run that made them, whatever ends it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from testcluster import binaries, lifecycle, packages
from testcluster.layout import Cluster
from testcluster.shell import search_path


def missing_for_api() -> str | None:
    """What keeps this machine from running an API server, with the cure; None if nothing does."""
    if not binaries.is_built():
        return "the test cluster's binaries aren't built: `make cluster-build` builds them"
    if shutil.which("openssl") is None:
        return "openssl is missing: `make cluster-build` installs it"
    return None


def missing_for_cluster() -> str | None:
    """The same for a whole cluster and its images."""
    if os.geteuid():
        return "a whole cluster needs root: run the suite as root"
    os.environ["PATH"] = search_path()
    absent = packages.missing()
    if absent:
        return f"{', '.join(absent)} missing: `make cluster-build` installs them"
    return missing_for_api()


def require(missing: str | None) -> None:
    """Skip where a person may lack something; fail where nothing may be lacking."""
    if missing is None:
        return
    if os.environ.get("CI") == "true":
        pytest.fail(missing, pytrace=False)
    pytest.skip(missing)


@contextmanager
def temporary(
    prefix: str, *, api_only: bool = False, controllers: bool = False, services: str = ""
) -> Iterator[Cluster]:
    """A running cluster named after this process.

    prefix: one letter. services: an API server's ranges of Services' addresses.
    """
    os.environ["PATH"] = search_path()
    cluster = Cluster(f"{prefix}{os.getpid()}")
    lifecycle.up(
        cluster, api_only=api_only, controllers=controllers, services=services, owner=os.getpid()
    )
    try:
        yield cluster
    finally:
        lifecycle.down(cluster)
