"""A hundred servers, half an hour of changes, five quiet minutes: what the operator costs.

The figures go to docs/benchmarks/cluster.json.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
from flatwake_loadtest import machine
from flatwake_loadtest.verdict import Flatness
from testcluster import binaries, growth, layout, rollout
from testcluster.churn import Churn
from testcluster.growth import Samples
from testcluster.hub import Hub
from testcluster.kube import Kube, KubectlError
from testcluster.layout import Cluster
from testcluster.operators import Operators
from testcluster.shell import say

FIGURES = layout.REPOSITORY / "docs/benchmarks/cluster.json"
SERVERS = 100
CHURN_S = float(os.environ.get("SOAK_CHURN_S", 1800))
QUIET_S = float(os.environ.get("SOAK_QUIET_S", 300))
PACE_S = 1.0
WINDOW_S = 120
"""Memory is the median over the first and over the last of these seconds of the churn."""
SAMPLE_S = 10.0
SEED = 20261130

pytestmark = [pytest.mark.slow, pytest.mark.timeout(7200)]


@pytest.fixture(scope="module")
def figures() -> Iterator[dict[str, Any]]:
    """What the tests of this module find; what an earlier run found of the others stays."""
    found: dict[str, Any] = {}
    began = {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": machine.commit(),
        "load_average_before": round(os.getloadavg()[0], 2),
    }
    yield found
    if not found:
        return
    head = began | {
        "machine": machine.machine(),
        "load_average_after": round(os.getloadavg()[0], 2),
        "versions": machine.versions() | {"kubernetes": binaries.kubernetes_version()[0]},
        "command": "make soak",
    }
    earlier = json.loads(FIGURES.read_text()) if FIGURES.exists() else {}
    FIGURES.write_text(json.dumps(earlier | head | found, indent=1) + "\n")


@pytest.fixture(scope="module")
def operators(kube: Kube, release: str) -> Operators:
    return Operators(kube, release)


@pytest.fixture(scope="module")
def churn(kube: Kube, operators: Operators, module_namespace: str) -> Churn:
    names = [f"server-{number:03}" for number in range(SERVERS)]
    return Churn(kube, module_namespace, names, SEED)


def sampled(operators: Operators, leader: str, now: float, changes: int) -> Samples:
    """What the leader holds; nothing where kubectl has run out of time on a busy machine."""
    try:
        held = operators.metrics(leader)["process_resident_memory_bytes"]
    except (KubectlError, subprocess.TimeoutExpired) as error:
        say(f"not sampled: {error}")
        return []
    return [(now, changes, held)]


def test_a_hundred_servers_converge(
    churn: Churn, operators: Operators, figures: dict[str, Any]
) -> None:
    before = operators.calls()
    began = time.monotonic()
    churn.create()
    created = time.monotonic() - began
    churn.converge(timeout_s=600)
    figures["converge_s_100"] = round(time.monotonic() - began, 1)
    figures["create_s_100"] = round(created, 1)
    after = operators.calls()
    made = {key: count - before.get(key, 0) for key, count in after.items()}
    figures["calls_per_resource"] = round(sum(made.values()) / SERVERS, 2)
    figures["calls_by_verb_and_kind"] = {
        f"{verb} {kind}": round(count / SERVERS, 2)
        for (verb, kind), count in sorted(made.items())
        if count
    }


def test_memory_is_flat_over_half_an_hour_of_changes(
    churn: Churn, operators: Operators, figures: dict[str, Any]
) -> None:
    # More objects take more memory: what is looked at is whether the same ones do.
    churn.fill()
    for _ in range(SERVERS):
        churn.step()
    churn.converge(timeout_s=300)
    leader = operators.leader()
    samples: Samples = []
    churn.done.clear()
    began = time.monotonic()
    while (now := time.monotonic() - began) < CHURN_S:
        churn.step()
        if not samples or now - samples[-1][0] >= SAMPLE_S:
            samples += sampled(operators, leader, now, churn.done.total())
        # The pace of a busy cluster: nothing is waited for.
        time.sleep(max(0.0, PACE_S - (time.monotonic() - began - now)))
    window = min(WINDOW_S, CHURN_S / 4)
    first = [held for when, _, held in samples if when <= window]
    last = [held for when, _, held in samples if when >= samples[-1][0] - window]
    figures["rss_mb_before"] = round(statistics.median(first) / growth.MB, 1)
    figures["rss_mb_after"] = round(statistics.median(last) / growth.MB, 1)
    found = growth.judge(samples)
    figures.update(growth.figures(samples, found))
    figures["churn_s"] = round(time.monotonic() - began)
    figures["changes"] = dict(sorted(churn.done.items()))
    churn.converge(timeout_s=300)
    assert operators.leader() == leader, "one process led all the time"
    assert found.flatness is Flatness.FLAT, f"{found.reason}\n{samples}"


def test_a_quiet_cluster_gets_no_write_but_the_leases(
    kube: Kube, churn: Churn, operators: Operators, figures: dict[str, Any]
) -> None:
    churn.converge(timeout_s=300)
    lease = kube.get("lease", "flatwake-operator", operators.namespace)
    before, versions = operators.writes(), churn.versions()
    time.sleep(QUIET_S)  # a quiet time is what is looked at
    figures["quiet_writes"] = operators.writes() - before
    figures["quiet_s"] = round(QUIET_S)
    assert churn.versions() == versions
    assert figures["quiet_writes"] == 0
    assert kube.get("lease", "flatwake-operator", operators.namespace) != lease, "it is renewed"


def test_no_request_fails_in_a_rollout(
    cluster: Cluster,
    kube: Kube,
    release: str,
    hub: Hub,
    module_namespace: str,
    figures: dict[str, Any],
) -> None:
    rolled = rollout.under_users(cluster, kube, hub, module_namespace)
    kube.kubectl("-n", module_namespace, "delete", "infs", "smollm2", "--timeout=60s")
    failures = rolled.users.failures()
    figures["failed_requests_in_rollout"] = len(failures)
    figures["requests_in_rollout"] = len(rolled.users.answers)
    figures["rollout_s"] = round(rolled.seconds, 1)
    assert failures == []
