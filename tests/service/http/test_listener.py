"""A server listens where it is told, else everywhere: in both families, or in the one there is."""

from __future__ import annotations

import errno
import os
import socket
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest
from flatwake_service.errors import PortInUse
from flatwake_service.http import listener
from ipv6_only import REFUSED
from process import ServerProcess


def reaches(host: str, port: int) -> bool:
    try:
        with socket.create_connection((host, port), timeout=5):
            return True
    except OSError:
        return False


@pytest.mark.parametrize(
    ("host", "shown", "reached"),
    [
        ("127.0.0.1", "127.0.0.1", {"127.0.0.1"}),
        ("0.0.0.0", "127.0.0.1", {"127.0.0.1"}),
        ("::1", "[::1]", {"::1"}),
        ("::", "127.0.0.1", {"127.0.0.1", "::1"}),
        (None, "127.0.0.1", {"127.0.0.1", "::1"}),
    ],
)
def test_the_endpoint_is_one_that_a_client_here_can_use(
    host: str | None, shown: str, reached: set[str]
) -> None:
    with listener.bind(host, 0) as bound:
        port = bound.getsockname()[1]
        assert listener.endpoint(bound) == f"http://{shown}:{port}/v1"
        assert {each for each in ("127.0.0.1", "::1") if reaches(each, port)} == reached


@pytest.mark.parametrize("host", [None, "::1"])
def test_a_server_answers_under_the_address_that_it_says(host: str | None) -> None:
    with ServerProcess(host=host) as server:
        server.wait_ready()
        url = server.url.removesuffix("/v1")
        assert httpx.get(f"{url}/ready").status_code == 200
        port = urlsplit(url).port
        assert httpx.get(f"http://[::1]:{port}/ready").status_code == 200


def test_a_machine_without_ipv6_is_listened_on_in_ipv4(monkeypatch: pytest.MonkeyPatch) -> None:
    real = socket.socket

    def without_ipv6(family: int = -1, *given: int) -> socket.socket:
        if family == socket.AF_INET6:
            raise OSError(errno.EAFNOSUPPORT, "Address family not supported by protocol")
        return real(family, *given)

    monkeypatch.setattr(listener.socket, "socket", without_ipv6)
    with listener.bind(None, 0) as bound:
        assert bound.family == socket.AF_INET
        host, port = bound.getsockname()
        assert (host, listener.endpoint(bound)) == ("0.0.0.0", f"http://127.0.0.1:{port}/v1")


def test_a_port_in_use_is_named_whatever_was_asked_for() -> None:
    with listener.bind(None, 0) as bound:
        port = bound.getsockname()[1]
        for host, said in ((None, "all addresses"), ("127.0.0.1", r"127\.0\.0\.1"), ("::1", "::1")):
            with pytest.raises(PortInUse, match=f"can't listen on {said} port {port}"):
                listener.bind(host, port)


def test_where_there_is_nothing_but_ipv6_a_server_is_found_there() -> None:
    support = Path(__file__).parent / "support"
    done = subprocess.run(
        [sys.executable, support / "ipv6_only.py"],
        env=os.environ | {"PYTHONPATH": str(support)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    if done.returncode == REFUSED and os.environ.get("CI") != "true":
        pytest.skip("this user may not have a network namespace")
    assert done.returncode == 0, done.stderr
    url, status = done.stdout.split()
    assert url.startswith("http://[::1]:")
    assert status == "200"
