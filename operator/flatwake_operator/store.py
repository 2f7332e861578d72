"""What the watches have shown: the newest known version of each object, by kind.

Filled by kopf's events, by the operator's own writes and by the resync's lists, whichever is newer.
"""

from collections import defaultdict
from collections.abc import Iterator

from flatwake_operator import labels
from flatwake_operator.kinds import SERVER, Kind
from flatwake_operator.settings import Object

Key = tuple[str, str]
"""An InferenceServer: namespace and name."""


def version(thing: Object) -> int:
    """resourceVersion as a number: the API promises that it grows."""
    return int(thing["metadata"].get("resourceVersion") or 0)


def key_of(thing: Object) -> Key | None:
    """The server that an object belongs to, itself included."""
    meta = thing["metadata"]
    if thing["kind"] == SERVER.name:
        return meta["namespace"], meta["name"]
    name = (meta.get("labels") or {}).get(labels.SERVER)
    return (meta["namespace"], name) if name else None


class Store:
    def __init__(self) -> None:
        self._objects: dict[str, dict[Key, Object]] = defaultdict(dict)
        self._servers: dict[str, dict[Key, set[Key]]] = defaultdict(lambda: defaultdict(set))

    def put(self, thing: Object) -> bool:
        """Keeps an object unless a newer version is known; says whether it was news."""
        place = _place(thing)
        held = self._objects[thing["kind"]].get(place)
        if held is not None and version(held) >= version(thing):
            return False
        if held is not None:
            self._forget(held)
        self._objects[thing["kind"]][place] = _slim(thing)
        owner = key_of(thing)
        if owner:
            self._servers[thing["kind"]][owner].add(place)
        return True

    def remove(self, thing: Object) -> None:
        """Drops an object that is gone, unless a newer one has taken its name."""
        held = self._objects[thing["kind"]].get(_place(thing))
        if held is not None and held["metadata"]["uid"] == thing["metadata"]["uid"]:
            self._forget(held)

    def replace(self, kind: Kind, items: list[Object], listed: int) -> set[Key]:
        """Takes a whole list; returns the servers for which it brought news."""
        changed: set[Key] = set()
        present = {_place(item) for item in items}
        for item in items:
            owner = key_of(item)
            if self.put(item) and owner:
                changed.add(owner)
        for place, held in list(self._objects[kind.name].items()):
            # What is newer than the list can't be in it.
            if place not in present and version(held) <= listed:
                owner = key_of(held)
                self._forget(held)
                changed |= {owner} if owner else set()
        return changed

    def get(self, kind: Kind, namespace: str, name: str) -> Object | None:
        return self._objects[kind.name].get((namespace, name))

    def all(self, kind: Kind) -> list[Object]:
        return list(self._objects[kind.name].values())

    def of(self, kind: Kind, server: Key) -> list[Object]:
        """A server's objects of a kind, by name."""
        places = sorted(self._servers[kind.name].get(server, ()))
        return [self._objects[kind.name][place] for place in places]

    def servers(self) -> Iterator[Key]:
        yield from list(self._objects[SERVER.name])

    def _forget(self, held: Object) -> None:
        place = _place(held)
        del self._objects[held["kind"]][place]
        owner = key_of(held)
        if owner:
            places = self._servers[held["kind"]][owner]
            places.discard(place)
            if not places:
                del self._servers[held["kind"]][owner]


def _place(thing: Object) -> Key:
    return thing["metadata"].get("namespace", ""), thing["metadata"]["name"]


def _slim(thing: Object) -> Object:
    # managedFields are more than half of most objects, and nothing here reads them.
    meta = {key: value for key, value in thing["metadata"].items() if key != "managedFields"}
    return {**thing, "metadata": meta}
