"""The resync: lists of everything, once a minute, against whatever the watches may have missed."""

import asyncio
import logging
from collections.abc import Callable

from flatwake_operator import kinds, labels
from flatwake_operator.api import Api, Listing
from flatwake_operator.errors import ApiError, UnreachableError
from flatwake_operator.kinds import Kind
from flatwake_operator.observe import Abilities, Observer
from flatwake_operator.store import Key, Store
from flatwake_operator.watches import Watches

log = logging.getLogger(__name__)

RESYNC_SECONDS = 60.0


class Resync:
    def __init__(
        self,
        api: Api,
        store: Store,
        watches: Watches,
        observer: Observer,
        abilities: Abilities,
        namespaces: list[str],
        wake: Callable[[Key], None],
        seconds: float = RESYNC_SECONDS,
    ) -> None:
        self.api = api
        self.store = store
        self.watches = watches
        self.observer = observer
        self.abilities = abilities
        self.namespaces = namespaces
        self.wake = wake
        self.seconds = seconds

    async def once(self) -> None:
        """Takes every list and wakes every server."""
        for kind in (kinds.SERVER, *kinds.CHILDREN, kinds.POD):
            if kind in kinds.CHILDREN and kind not in self.abilities.apis:
                continue
            await self._take(kind, "" if kind is kinds.SERVER else labels.SERVER)
        if self.abilities.nodes:
            await self._take(kinds.NODE, "")
        living = {pod["metadata"]["uid"] for pod in self.store.all(kinds.POD)}
        self.observer.forget(set(self.observer.reports) - living)
        for key in self.store.servers():
            self.wake(key)

    async def forever(self) -> None:
        while True:
            await asyncio.sleep(self.seconds)
            try:
                await self.once()
            except (ApiError, UnreachableError) as error:
                log.warning("resync: %s", error)

    async def _take(self, kind: Kind, selector: str) -> None:
        for listing in await self._lists(kind, selector):
            version = int(listing.version)
            self.store.replace(kind, listing.items, version)
            self.watches.compare(kind, listing.items, version)

    async def _lists(self, kind: Kind, selector: str) -> list[Listing]:
        if not self.namespaces or not kind.namespaced:
            return [await self.api.list(kind, labels=selector)]
        listings = [await self.api.list(kind, name, selector) for name in self.namespaces]
        whole = [item for listing in listings for item in listing.items]
        return [Listing(whole, min((one.version for one in listings), key=int))]
