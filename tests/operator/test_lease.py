"""One leads; another takes over in the Lease's time; a late one stops writing by itself."""

import asyncio
import time
from collections.abc import Iterator

import kopf
import pytest
from apiserver import ApiServer
from flatwake_operator.api import Api
from flatwake_operator.errors import LeaseLostError
from flatwake_operator.keeper import Keeper
from flatwake_operator.kinds import LEASE
from flatwake_operator.lease import DEADLINE_SECONDS, DURATION_SECONDS, RENEW_SECONDS, Lease


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class Candidates:
    """Two processes that want the same Lease, under one clock."""

    def __init__(self, server: ApiServer, name: str) -> None:
        self.server = server
        self.clock = Clock()
        self.loop = asyncio.new_event_loop()
        connection = kopf.ConnectionInfo(server=server.url, token=server.token, insecure=True)
        self.api = Api(connection)
        self.first, self.second = (
            Lease(self.api, "default", name, identity, self.clock) for identity in ("one", "two")
        )
        self.path = LEASE.path("default", name)

    def take(self, lease: Lease) -> bool:
        return self.loop.run_until_complete(lease.try_once())

    def holder(self) -> tuple[str, int]:
        spec = self.server.call("GET", self.path)[1]["spec"]
        return spec["holderIdentity"], spec["leaseTransitions"]

    def close(self) -> None:
        self.loop.run_until_complete(self.api.close())
        self.loop.close()


@pytest.fixture
def candidates(bare_api: ApiServer, request: pytest.FixtureRequest) -> Iterator[Candidates]:
    made = Candidates(bare_api, request.node.name.replace("_", "-"))
    yield made
    made.close()


def test_one_leads_and_the_other_waits(candidates: Candidates) -> None:
    assert candidates.take(candidates.first)
    assert not candidates.take(candidates.second)
    assert candidates.take(candidates.first)
    assert candidates.holder() == ("one", 1)
    candidates.first.check()
    with pytest.raises(LeaseLostError):
        candidates.second.check()


def test_a_silent_leader_stops_writing_before_another_takes_over(candidates: Candidates) -> None:
    assert candidates.take(candidates.first)
    assert not candidates.take(candidates.second)
    candidates.clock.now += DEADLINE_SECONDS
    with pytest.raises(LeaseLostError):
        candidates.first.check()
    assert not candidates.take(candidates.second)
    candidates.clock.now += DURATION_SECONDS - DEADLINE_SECONDS + 0.1
    assert candidates.take(candidates.second)
    assert candidates.holder() == ("two", 2)
    assert not candidates.take(candidates.first)


def test_renewals_keep_another_away_however_long(candidates: Candidates) -> None:
    for _ in range(10):
        assert candidates.take(candidates.first)
        candidates.clock.now += DEADLINE_SECONDS - 1
        assert not candidates.take(candidates.second)
        candidates.first.check()


def test_a_released_lease_is_taken_at_once(candidates: Candidates) -> None:
    assert candidates.take(candidates.first)
    candidates.loop.run_until_complete(candidates.first.release())
    with pytest.raises(LeaseLostError):
        candidates.first.check()
    assert candidates.take(candidates.second)


def test_a_lease_is_renewed_while_the_loop_is_busy(bare_api: ApiServer) -> None:
    connection = kopf.ConnectionInfo(server=bare_api.url, token=bare_api.token, insecure=True)

    async def lead() -> None:
        api = Api(connection)
        lease = Lease(api, "default", "busy", "one")
        assert await lease.try_once()
        keeping = asyncio.create_task(Keeper(lease, lambda: Api(connection)).run())
        await asyncio.sleep(0)
        seen = set()
        # Nothing of the loop runs meanwhile, as these calls wait for their answers.
        deadline = time.monotonic() + 6 * RENEW_SECONDS
        while len(seen) < 3 and time.monotonic() < deadline:
            seen.add(bare_api.call("GET", LEASE.path("default", "busy"))[1]["spec"]["renewTime"])
        assert len(seen) == 3
        lease.check()
        keeping.cancel()
        with pytest.raises(asyncio.CancelledError):
            await keeping
        await lease.release()
        assert not lease.leading
        await api.close()

    asyncio.run(lead())
