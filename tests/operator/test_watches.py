"""Events as they come, twice and in any order; and watches that have died while lists show news."""

import asyncio
import itertools
from collections.abc import Iterator
from typing import Any

import kopf
import pytest
from flatwake_operator import kinds, watches
from flatwake_operator.api import Api
from flatwake_operator.keys import KeyQueue
from flatwake_operator.probes import BLIND_SECONDS, SILENT_SECONDS, Probes
from flatwake_operator.settings import Object
from flatwake_operator.store import Key, Store
from flatwake_operator.watches import Watches

CHAT = ("default", "chat")


def service(version: int, uid: str = "one") -> Object:
    meta = {
        "namespace": "default",
        "name": "chat",
        "uid": uid,
        "resourceVersion": str(version),
        "labels": {"flatwake.dev/server": "chat"},
    }
    return {"apiVersion": "v1", "kind": "Service", "metadata": meta}


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(watches, "time", made)
    return made


@pytest.fixture
def woken() -> list[Key]:
    return []


@pytest.fixture
def watching(woken: list[Key], clock: Clock) -> Watches:
    return Watches(Store(), woken.append)


@pytest.fixture
def probes(watching: Watches) -> Iterator[Probes]:
    async def nothing(_: Key) -> None: ...

    api = Api(kopf.ConnectionInfo(server="http://127.0.0.1:9"))
    yield Probes(api, watching.store, KeyQueue(nothing), watching, None)
    asyncio.run(api.close())


EVENTS: list[tuple[str, Object]] = [
    ("ADDED", service(1)),
    ("MODIFIED", service(2)),
    ("MODIFIED", service(2)),
    ("MODIFIED", service(3)),
]


@pytest.mark.parametrize("order", list(itertools.permutations(EVENTS)))
def test_events_in_any_order_leave_the_newest(
    watching: Watches, woken: list[Key], order: list[Any]
) -> None:
    for what, thing in order:
        watching.take(thing, what)
    (held,) = watching.store.of(kinds.SERVICE, CHAT)
    assert held["metadata"]["resourceVersion"] == "3"
    assert woken == [CHAT] * len(EVENTS)


def test_an_old_ones_end_that_comes_late_leaves_the_new_one_of_its_name(watching: Watches) -> None:
    watching.take(service(1), "ADDED")
    watching.take(service(9, uid="two"), "ADDED")
    watching.take(service(5), "DELETED")
    (held,) = watching.store.of(kinds.SERVICE, CHAT)
    assert held["metadata"]["uid"] == "two"


def test_one_that_is_gone_and_comes_back_in_a_late_event_goes_with_the_next_list(
    watching: Watches,
) -> None:
    watching.take(service(4), "DELETED")
    watching.take(service(3), "MODIFIED")
    assert watching.store.replace(kinds.SERVICE, [], listed=5) == {CHAT}
    assert watching.store.of(kinds.SERVICE, CHAT) == []


def test_liveness_fails_when_a_list_shows_what_no_watch_has_shown_for_long(
    watching: Watches, probes: Probes, clock: Clock
) -> None:
    watching.take(service(1), "ADDED")
    watching.compare(kinds.SERVICE, [service(2)], 2)
    clock.now += BLIND_SECONDS
    assert probes.liveness() is None
    watching.compare(kinds.SERVICE, [service(3)], 3)
    clock.now += 1
    assert "the watches have missed a change" in (probes.liveness() or "")
    watching.take(service(3), "MODIFIED")
    assert probes.liveness() is None


def test_a_quiet_watch_is_no_dead_one(watching: Watches, probes: Probes, clock: Clock) -> None:
    watching.take(service(1), "ADDED")
    for _ in range(10):
        clock.now += BLIND_SECONDS
        watching.compare(kinds.SERVICE, [service(1)], 1)
    assert probes.liveness() is None


def test_what_is_gone_before_a_watch_showed_it_is_forgotten(
    watching: Watches, probes: Probes, clock: Clock
) -> None:
    watching.compare(kinds.SERVICE, [service(2)], 2)
    watching.compare(kinds.SERVICE, [], 3)
    clock.now += 2 * BLIND_SECONDS
    assert probes.liveness() is None


def test_one_whose_end_no_watch_showed_is_forgotten_and_a_newer_one_is_not(
    watching: Watches,
) -> None:
    watching.take(service(2), "ADDED")
    watching.compare(kinds.SERVICE, [], 1)
    assert list(watching.seen.values()) == [2]
    watching.compare(kinds.SERVICE, [], 3)
    assert watching.seen == {}


def test_an_api_server_that_is_away_is_readiness_and_no_reason_to_restart(probes: Probes) -> None:
    assert probes.readiness() is None
    probes.api.calls.last_answer -= SILENT_SECONDS + 1
    assert "the API server hasn't answered" in (probes.readiness() or "")
    assert probes.liveness() is None
