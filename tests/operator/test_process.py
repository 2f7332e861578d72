"""The operator as a process: it leads, hands over, survives its API server, and keeps quiet."""

import itertools
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from apiserver import ApiServer
from faulty import Fault, Proxy
from flatwake_operator import crd, kinds, labels, startup
from lab import Lab

PROGRAM = "from flatwake_operator.cli import operator; operator()"
START_SECONDS = 240
"""For a process to import its packages, on however busy a machine."""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Process:
    """One operator of a namespace."""

    def __init__(self, lab: Lab, folder: Path, name: str, *more: str, url: str = "") -> None:
        kubeconfig = lab.server.kubeconfig()
        if url:
            kubeconfig["clusters"][0]["cluster"] = {"server": url}
        config = folder / "kubeconfig"
        config.write_text(json.dumps(kubeconfig))
        self.port = free_port()
        self.log = folder / f"{name}.log"
        words = [sys.executable, "-c", PROGRAM, "--image-cpu=localhost/cpu:1"]
        words += [f"--namespace={lab.namespace}", f"--watch-namespace={lab.namespace}"]
        words += [f"--identity={name}", f"--port={self.port}", *more]
        with self.log.open("wb") as log:
            self.child = subprocess.Popen(
                words,
                env={**os.environ, "KUBECONFIG": str(config)},
                stdout=log,
                stderr=subprocess.STDOUT,
            )

    def ask(self, path: str) -> httpx.Response | None:
        try:
            return httpx.get(f"http://127.0.0.1:{self.port}/{path}", timeout=5)
        except httpx.HTTPError:
            return None

    def metric(self, pattern: str) -> float:
        """The sum of the samples whose line matches."""
        answer = self.ask("metrics")
        lines = answer.text.splitlines() if answer else []
        return sum(float(line.rsplit(" ", 1)[1]) for line in lines if re.match(pattern, line))

    def leads(self) -> bool:
        return self.metric(r"flatwake_operator_leader ") == 1.0

    def end(self, number: int = signal.SIGTERM) -> int:
        if self.child.poll() is None:
            self.child.send_signal(number)
        return self.child.wait(30)


@pytest.fixture
def lab(api: ApiServer) -> Iterator[Lab]:
    made = Lab(api)
    yield made
    made.close()


@pytest.fixture
def start(lab: Lab, tmp_path: Path) -> Iterator[Callable[..., Process]]:
    started: list[Process] = []

    def one(name: str, *more: str, url: str = "") -> Process:
        started.append(Process(lab, tmp_path, name, *more, url=url))
        return started[-1]

    yield one
    for process in started:
        process.end(signal.SIGKILL)
        sys.stdout.write(process.log.read_text()[-3000:])


@pytest.fixture
def proxy(lab: Lab) -> Iterator[Proxy]:
    with Proxy(lab.server) as running:
        yield running


def until(what: str, holds: Callable[[], Any], seconds: float = 60) -> Any:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        found = holds()
        if found:
            return found
        time.sleep(0.1)  # the processes under test tell no one
    raise AssertionError(f"not within {seconds} s: {what}")


def args(lab: Lab) -> list[str]:
    found = lab.get(kinds.DEPLOYMENT)
    if found is None:
        return []
    return list(found["spec"]["template"]["spec"]["containers"][0]["args"])


def test_one_leads_another_takes_over_and_then_all_is_quiet(
    lab: Lab, start: Callable[..., Process]
) -> None:
    one = start("one")
    until("one leads", one.leads, START_SECONDS)
    two = start("two")
    lab.create()
    until("the Deployment is there", lambda: args(lab))
    until("two is ready and waits", lambda: two.ask("readyz"), START_SECONDS)
    assert not two.leads()
    one.end(signal.SIGKILL)
    lab.edit(limits={"queue": 7})
    began = time.monotonic()
    until("two carries on", lambda: "--queue" in args(lab))
    assert time.monotonic() - began < 40
    assert two.leads()
    writes = r'flatwake_operator_api_calls_total{.*verb="(patch|create|update|delete)"'

    def quiet() -> bool:
        before = two.metric(writes)
        time.sleep(3)  # a quiet time is what is looked for
        return two.metric(writes) == before

    until("no more writes", quiet)
    health = two.ask("healthz")
    assert health is not None
    assert health.status_code == 200
    assert two.end() == 0
    lease = lab.want(kinds.LEASE, "flatwake-operator")
    assert lease["spec"]["holderIdentity"] == ""


def test_watches_bring_changes_of_children_at_once(lab: Lab, start: Callable[..., Process]) -> None:
    one = start("one")
    until("one leads", one.leads, START_SECONDS)
    lab.create()
    until("the Service is there", lambda: lab.get(kinds.SERVICE))
    until("the status is there", lambda: lab.want(kinds.SERVER).get("status"))
    lab.ok("DELETE", kinds.SERVICE.path(lab.namespace, "chat"))
    until("the Service is back", lambda: lab.get(kinds.SERVICE), 20)
    server = lab.want(kinds.SERVER)
    assert "finalizers" not in server["metadata"]
    assert "annotations" not in server["metadata"]


def test_many_changes_at_once_are_seen_at_once(lab: Lab, start: Callable[..., Process]) -> None:
    """More of them than a watch should make wait for one another; no resync comes to help."""
    one = start("one", "--resync=10m")
    until("one leads", one.leads, START_SECONDS)
    for number in range(100):
        lab.create(f"chat{number}", replicas=0)
    until("all are seen", lambda: one.metric(r"flatwake_operator_servers ") == 100, 5)


def test_it_outlives_what_an_api_server_can_do(
    lab: Lab, start: Callable[..., Process], proxy: Proxy
) -> None:
    """429 storms, 410 in a watch, silent watches, a restart, refused statuses: each time it
    converges again."""
    one = start("one", "--resync=3s", url=proxy.url)
    until("one leads", one.leads, START_SECONDS)
    lab.create()
    until("the Deployment is there", lambda: args(lab))
    faults = [fault for fault in Fault if fault is not Fault.NONE]
    for number, fault in enumerate(faults, start=2):
        proxy.fault = fault
        seen = proxy.refused
        lab.edit(limits={"queue": number})
        if fault not in (Fault.GONE, Fault.SILENT):
            until(f"{fault} was felt", lambda seen=seen: proxy.refused > seen + 1)
            proxy.fault = Fault.NONE
        until(
            f"it converges after {fault}",
            lambda number=number: ["--queue", str(number)] == _after(args(lab), "--queue"),
        )
        until(f"the status follows after {fault}", lambda: _is_told(lab))
        proxy.fault = Fault.NONE
        assert one.child.poll() is None, f"{fault} ended it"
    assert len(lab.list(kinds.DEPLOYMENT)) == 1
    assert one.end() == 0


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_killed_after_any_of_its_writes_another_process_converges(
    lab: Lab, start: Callable[..., Process], proxy: Proxy
) -> None:
    """A server is made, then changed; SIGKILL comes after write 1, 2, 3, … of the two."""
    for point in itertools.count(1):
        name = f"chat{point}"
        process = start(f"number{point}", "--no-elect", url=proxy.url)
        until("it is ready", lambda process=process: process.ask("readyz"), START_SECONDS)
        first = proxy.written

        def kill(number: int, process: Process = process, last: int = first + point) -> None:
            if number == last:
                process.child.kill()

        proxy.on_write = kill
        _make_and_change(lab, process, name)
        survived = process.child.poll() is None
        if not survived:
            proxy.on_write = lambda _: None
            process = start(f"successor{point}", "--no-elect")
            _make_and_change(lab, process, name)
        for kind in (kinds.DEPLOYMENT, kinds.SERVICE, kinds.BUDGET):
            mine = lab.ok("GET", f"{kind.path(lab.namespace)}?labelSelector={labels.SERVER}={name}")
            assert [thing["metadata"]["name"] for thing in mine["items"]] == [name], kind.name
        revisions = kinds.REVISION.path(lab.namespace)
        kept = lab.ok("GET", f"{revisions}?labelSelector={labels.SERVER}={name}")["items"]
        assert 1 <= len(kept) <= 2
        process.end(signal.SIGKILL)
        if survived:
            break
    print(f"{point - 1} points")
    assert point > 10


def _make_and_change(lab: Lab, process: Process, name: str) -> None:
    """A server, then a change of it; each waits for what is wanted or for the process's end."""

    def queue_is(number: int) -> bool:
        found = lab.get(kinds.DEPLOYMENT, name)
        words = found["spec"]["template"]["spec"]["containers"][0]["args"] if found else []
        conditions = lab.conditions(name)
        current = lab.want(kinds.SERVER, name)["metadata"]["generation"]
        said = conditions.get("Accepted", {}).get("observedGeneration") == current
        settled = found is not None and not found["spec"].get("paused")
        return settled and said and _after(words, "--queue") == ["--queue", str(number)]

    if lab.get(kinds.SERVER, name) is None:
        lab.create(name, replicas=2, limits={"queue": 5})
    for number in (5, 6):
        if number == 6 or lab.want(kinds.SERVER, name)["spec"]["limits"]["queue"] == number:
            lab.edit(name, limits={"queue": number})
            until(
                f"{name} has queue {number}",
                lambda number=number: process.child.poll() is not None or queue_is(number),
            )


def _is_told(lab: Lab) -> bool:
    server = lab.want(kinds.SERVER)
    said = lab.conditions().get("Accepted", {}).get("observedGeneration")
    return bool(said == server["metadata"]["generation"])


def _after(words: list[str], flag: str) -> list[str]:
    where = words.index(flag) if flag in words else len(words)
    return words[where : where + 2]


def test_a_crd_that_lacks_fields_is_found_out() -> None:
    wanted = crd.schema()
    older = json.loads(json.dumps(wanted))
    del older["properties"]["spec"]["properties"]["engine"]["properties"]["graphs"]
    assert startup.missing_fields(wanted, older) == ["spec.engine.graphs"]
    assert startup.missing_fields(wanted, wanted) == []
