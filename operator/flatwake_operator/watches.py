"""kopf's watches: they fill the store and wake keys, and do nothing else.

`@kopf.on.event` alone, so that kopf writes no annotation and no finalizer.
"""

import time
from collections.abc import Callable
from typing import Any

import kopf

from flatwake_operator import kinds
from flatwake_operator.kinds import Kind
from flatwake_operator.observe import Abilities
from flatwake_operator.settings import Object
from flatwake_operator.store import Key, Store, key_of, version


class Watches:
    """What the handlers share: the store, and the newest version that each object was seen at."""

    def __init__(self, store: Store, wake: Callable[[Key], None]) -> None:
        self.store = store
        self.wake = wake
        self.seen: dict[tuple[str, Key], int] = {}
        self._unseen: dict[tuple[str, Key], tuple[int, float]] = {}

    def registry(self, abilities: Abilities) -> kopf.OperatorRegistry:
        """Handlers for our resource, our children and pods, and nodes if they may be seen."""
        registry = kopf.OperatorRegistry()
        kopf.on.event(*_place(kinds.SERVER), registry=registry)(self._on_server)
        for kind in (*kinds.CHILDREN, kinds.POD):
            if kind in kinds.CHILDREN and kind not in abilities.apis:
                continue
            kopf.on.event(*_place(kind), registry=registry)(self._on_child)
        if abilities.nodes:
            kopf.on.event(*_place(kinds.NODE), registry=registry)(self._on_node)
        kopf.on.login(registry=registry)(_login)
        return registry

    async def _on_server(self, event: Any, **_: Any) -> None:
        self.take(dict(event["object"]), event["type"])

    async def _on_child(self, event: Any, **_: Any) -> None:
        self.take(dict(event["object"]), event["type"])

    async def _on_node(self, event: Any, **_: Any) -> None:
        node = dict(event["object"])
        before = self.store.get(kinds.NODE, "", node["metadata"]["name"])
        if event["type"] == "DELETED":
            self.store.remove(node)
        else:
            self.store.put(node)
        if event["type"] == "DELETED" or before is None or _matters(before) != _matters(node):
            for key in self.store.servers():
                self.wake(key)

    def take(self, thing: Object, what: str | None) -> None:
        """One event of any of our kinds."""
        owner = key_of(thing)
        place = thing["metadata"].get("namespace", ""), thing["metadata"]["name"]
        mark = (thing["kind"], place)
        if what == "DELETED":
            self.store.remove(thing)
            self.seen.pop(mark, None)
        else:
            self.store.put(thing)
            self.seen[mark] = max(self.seen.get(mark, 0), version(thing))
        if owner:
            self.wake(owner)

    def compare(self, kind: Kind, items: list[Object], listed: int) -> None:
        """Notes what a list shows and no handler has seen yet.

        listed: the list's own version.
        """
        if kind is kinds.NODE:
            return
        now = time.monotonic()
        present = set()
        for item in items:
            place = item["metadata"].get("namespace", ""), item["metadata"]["name"]
            mark = (kind.name, place)
            present.add(mark)
            if self.seen.get(mark, 0) < version(item):
                self._unseen.setdefault(mark, (version(item), now))
        for mark in [m for m in self._unseen if m[0] == kind.name and m not in present]:
            del self._unseen[mark]
        # A watch that broke off may have missed their end; what is newer can't be in the list.
        for mark in [m for m in self.seen if m[0] == kind.name and m not in present]:
            if self.seen[mark] <= listed:
                del self.seen[mark]

    def blind_seconds(self) -> float:
        """For how long a change has been there that no watch has shown; 0 while all is seen."""
        for mark, (wanted, _) in list(self._unseen.items()):
            if self.seen.get(mark, 0) >= wanted:
                del self._unseen[mark]
        now = time.monotonic()
        return max((now - since for _, since in self._unseen.values()), default=0.0)


def _place(kind: Kind) -> tuple[str, str, str]:
    return kind.group, kind.version.rpartition("/")[2], kind.plural


def _matters(node: Object) -> tuple[Any, ...]:
    status, spec = node.get("status") or {}, node.get("spec") or {}
    return (
        status.get("allocatable"),
        status.get("capacity"),
        spec.get("taints"),
        spec.get("unschedulable"),
        node["metadata"].get("labels"),
    )


def _login(**kwargs: Any) -> kopf.ConnectionInfo | None:
    return kopf.login_with_service_account(**kwargs) or kopf.login_with_kubeconfig(**kwargs)
