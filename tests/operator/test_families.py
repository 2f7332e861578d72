"""Clusters of IPv6 alone and of both families: Services, pods that are asked, the own port."""

import socket
from collections.abc import Iterator

import apiserver
import httpx
import pytest
import statuses
from flatwake_operator import crd, kinds
from flatwake_operator.keys import KeyQueue
from flatwake_operator.probes import Probes
from flatwake_operator.store import Key
from flatwake_operator.watches import Watches
from lab import Lab
from statuses import StatusServer

V4, V6 = "10.96.0.0/16", "fd00:96::/112"


@pytest.fixture
def loopback6() -> str:
    """The machine's own IPv6 address, or a skipped test."""
    with socket.socket(socket.AF_INET6) as probe:
        try:
            probe.bind(("::1", 0))
        except OSError as error:
            pytest.skip(f"this machine has no IPv6 loopback: {error}")
    return "::1"


@pytest.fixture
def status_server6(loopback6: str) -> Iterator[StatusServer]:
    with statuses.answering(loopback6) as server:
        yield server


@pytest.mark.parametrize(
    ("services", "families"),
    [(V6, ["IPv6"]), (f"{V4},{V6}", ["IPv4", "IPv6"]), (f"{V6},{V4}", ["IPv6", "IPv4"])],
)
@pytest.mark.usefixtures("binaries")
def test_a_server_has_an_address_of_each_family_that_its_cluster_has(
    services: str, families: list[str], status_server6: StatusServer
) -> None:
    with apiserver.running("f", services) as api:
        apiserver.install(api, crd.definition())
        lab = Lab(api)
        try:
            lab.create()
            lab.settle()
            service = lab.want(kinds.SERVICE)["spec"]
            assert service["ipFamilies"] == families
            assert len(service["clusterIPs"]) == len(families)
            assert_asked_by_ipv6(lab, status_server6)
        finally:
            lab.close()


def assert_asked_by_ipv6(lab: Lab, status_server: StatusServer) -> None:
    """A pod that has only an IPv6 address is asked for what it serves."""
    lab.status_port = status_server.port
    lab.stop()
    lab.start()
    status_server.reports["::1"] = {
        "phase": "ready",
        "model": {"source": "file:///models/m.gguf", "digest": "sha256:a"},
    }
    lab.pod("one")
    lab.pod_ready("one", "::1")
    lab.all_available()
    lab.settle()
    assert lab.condition("Ready") == ("True", "Serving")
    assert lab.want(kinds.SERVER)["status"]["model"]["digest"] == "sha256:a"


def test_the_operators_own_port_is_open_in_both_families(
    api: apiserver.ApiServer, loopback6: str
) -> None:
    lab = Lab(api)

    async def nothing(_: Key) -> None: ...

    async def ask() -> list[str]:
        queue: KeyQueue[Key] = KeyQueue(nothing)
        probes = Probes(lab.api, lab.store, queue, Watches(lab.store, queue.add), None)
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        runner = await probes.serve(port)
        async with httpx.AsyncClient(trust_env=False) as client:
            hosts = ("127.0.0.1", f"[{loopback6}]")
            said = [(await client.get(f"http://{host}:{port}/healthz")).text for host in hosts]
        await runner.cleanup()
        return said

    try:
        assert lab.run(ask()) == ["ok\n", "ok\n"]
    finally:
        lab.close()
