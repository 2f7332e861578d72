"""The operator itself: its leader dies, its API server goes away, and servers are looked after."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path

import pytest
from testcluster import lifecycle
from testcluster.churn import Churn
from testcluster.kube import Kube
from testcluster.operators import Operators

LEASE_S, LOOK_S = 15.0, 2.0
"""What the Lease lasts, and how often a candidate looks at it."""
WORK_S = 10.0
"""For the lists that a new leader begins with, on a busy machine."""


@pytest.fixture(scope="module")
def operators(kube: Kube, release: str) -> Operators:
    return Operators(kube, release)


@pytest.fixture
def servers(kube: Kube, operators: Operators, namespace: str) -> Churn:
    """A few servers that want no pods, all converged."""
    made = Churn(kube, namespace, ["a", "b", "c"], seed=1)
    made.create()
    made.converge(timeout_s=60)
    return made


def queue_of(servers: Churn, name: str) -> str:
    """What the Deployment's pods are started with as --queue."""
    found = servers.kube.get("deployment", name, servers.namespace)
    assert found is not None
    arguments = found["spec"]["template"]["spec"]["containers"][0]["args"]
    return str(arguments[arguments.index("--queue") + 1]) if "--queue" in arguments else ""


def edit(servers: Churn, name: str, queue: int) -> None:
    body = json.dumps({"spec": {"limits": {"queue": queue}}})
    words = ["patch", "infs", name, "--type=merge", "-p", body]
    servers.kube.kubectl("-n", servers.namespace, *words)


def process_of(pod: str) -> int:
    """A pod's first process, as numbered outside of the cluster, by a variable that it has."""
    mark = f"\0POD_NAME={pod}\0".encode()
    for entry in filter(str.isdigit, os.listdir("/proc")):
        try:
            if mark in b"\0" + Path(f"/proc/{entry}/environ").read_bytes():
                return int(entry)
        except OSError:
            continue  # it has just ended
    raise AssertionError(f"no process of pod {pod}")


def test_a_change_is_followed_within_the_leases_time_when_the_leader_is_killed(
    kube: Kube, operators: Operators, servers: Churn
) -> None:
    os.kill(process_of(operators.leader()), signal.SIGKILL)
    began = time.monotonic()
    edit(servers, "a", 7)
    kube.until(
        "the change is followed",
        lambda: queue_of(servers, "a") == "7",
        namespaces=[operators.namespace],
    )
    took = time.monotonic() - began
    print(f"followed {took:.1f} s after the kill")
    assert took < LEASE_S + LOOK_S + WORK_S
    servers.converge(timeout_s=60)


def test_another_leads_when_the_leader_stands_still_and_that_one_never_writes_again(
    kube: Kube, operators: Operators, servers: Churn
) -> None:
    kube.until("both are there", lambda: len(operators.ready()) == 2, timeout_s=120)
    first = operators.leader()
    process = process_of(first)
    os.kill(process, signal.SIGSTOP)
    try:
        began = time.monotonic()
        edit(servers, "b", 8)
        kube.until(
            "another leads",
            lambda: operators.holder() != first,
            namespaces=[operators.namespace],
        )
        took = time.monotonic() - began
        print(f"another leads after {took:.1f} s")
        assert took < LEASE_S + LOOK_S + WORK_S
        kube.until("the change is followed", lambda: queue_of(servers, "b") == "8")
    finally:
        os.kill(process, signal.SIGCONT)
    kube.until(
        "the first one has ended and begun anew",
        lambda: not Path(f"/proc/{process}").exists(),
        namespaces=[operators.namespace],
    )
    assert operators.holder() != first
    servers.converge(timeout_s=60)


def test_it_converges_after_its_api_server_was_restarted(
    kube: Kube, operators: Operators, servers: Churn
) -> None:
    before = set(operators.pods())
    edit(servers, "b", 8)
    os.kill(component(kube, "kube-apiserver"), signal.SIGKILL)
    kube.until("the API server is back", lambda: kube.get("namespace", "default"), timeout_s=120)
    edit(servers, "c", 9)
    kube.until(
        "both changes are followed",
        lambda: (queue_of(servers, "b"), queue_of(servers, "c")) == ("8", "9") or None,
        namespaces=[operators.namespace],
        timeout_s=120,
    )
    servers.converge(timeout_s=120)
    assert set(operators.pods()) == before


def component(kube: Kube, name: str) -> int:
    """A component's process, as numbered outside of the cluster."""
    for line in lifecycle.status(kube.cluster):
        words = line.split()
        if words[0] == name:
            return int(words[1])
    raise AssertionError(f"no {name}")
