"""Leadership by a coordination.k8s.io Lease: one process writes, another waits for its turn.

A leader renews every few seconds. Every write asks `check`, which raises once the last renewal is
too old for the Lease to be surely ours; the process then ends and begins anew as a candidate.
"""

import asyncio
import logging
import time
from collections.abc import Callable
from datetime import UTC, datetime

from flatwake_operator.api import Api
from flatwake_operator.errors import ApiError, LeaseLostError, UnreachableError
from flatwake_operator.kinds import LEASE
from flatwake_operator.settings import Object

log = logging.getLogger(__name__)

DURATION_SECONDS = 15.0
DEADLINE_SECONDS = 10.0
"""A leader stops writing this long after its last renewal, well before others may take over."""
RENEW_SECONDS = 4.0


class Lease:
    def __init__(
        self,
        api: Api,
        namespace: str,
        name: str,
        identity: str,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """api: a client of the Lease's own, without a guard."""
        self.api = api
        self.namespace = namespace
        self.name = name
        self.identity = identity
        self._clock = clock
        self._renewed: float | None = None
        self._held: Object | None = None
        self._seen: tuple[str, float] | None = None
        """What another leader's Lease looked like, and since when (our own clock)."""

    @property
    def leading(self) -> bool:
        return self._renewed is not None and self._clock() - self._renewed < DEADLINE_SECONDS

    def check(self) -> None:
        """Raises when a write might no longer be ours to make."""
        if not self.leading:
            raise LeaseLostError(f"the Lease {self.name} wasn't renewed in {DEADLINE_SECONDS} s")

    async def acquire(self) -> None:
        """Returns once this process leads."""
        while True:
            try:
                if await self.try_once():
                    return
            except (ApiError, UnreachableError) as error:
                log.warning("waiting for the Lease: %s", error)
            await asyncio.sleep(RENEW_SECONDS / 2)

    async def keep(self) -> None:
        """Renews until it can't any more; then raises LeaseLostError."""
        while True:
            await asyncio.sleep(RENEW_SECONDS)
            try:
                if not await self.try_once():
                    raise LeaseLostError(f"another process holds the Lease {self.name}")
            except (ApiError, UnreachableError) as error:
                log.warning("the Lease wasn't renewed: %s", error)
                self.check()

    async def release(self) -> None:
        """Lets the next one begin at once; a failure costs it the Lease's time."""
        if self._held is None or not self.leading:
            return
        self._held["spec"]["holderIdentity"] = ""
        self._held["spec"]["leaseDurationSeconds"] = 1
        try:
            await self.api.replace(self._held)
        except (ApiError, UnreachableError) as error:
            log.warning("the Lease wasn't released: %s", error)
        self._renewed = None

    async def try_once(self) -> bool:
        """Takes or renews the Lease if it is free or ours; says whether it is ours now."""
        asked = self._clock()
        found = await self.api.get(LEASE, self.namespace, self.name)
        if found is not None and not self._is_free(found):
            self._renewed = None
            return False
        try:
            if found is None:
                self._held = await self.api.create(self._wanted(None))
            else:
                self._held = await self.api.replace(self._wanted(found))
        except ApiError as error:
            if error.status == 409:  # someone else was quicker
                return False
            raise
        # From before the call: the API server's clock may have started counting then.
        self._renewed = asked
        return True

    def _is_free(self, found: Object) -> bool:
        spec = found.get("spec") or {}
        holder = spec.get("holderIdentity") or ""
        if holder in ("", self.identity):
            return True
        # Another's clock isn't ours: what counts is how long we have seen it stand still.
        look = f"{holder}/{found['metadata']['resourceVersion']}"
        if self._seen is None or self._seen[0] != look:
            self._seen = (look, self._clock())
            return False
        return self._clock() - self._seen[1] > float(spec.get("leaseDurationSeconds") or 0)

    def _wanted(self, found: Object | None) -> Object:
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        before = (found or {}).get("spec") or {}
        same = before.get("holderIdentity") == self.identity
        spec = {
            "holderIdentity": self.identity,
            "leaseDurationSeconds": int(DURATION_SECONDS),
            "renewTime": now,
            "acquireTime": before.get("acquireTime", now) if same else now,
            "leaseTransitions": int(before.get("leaseTransitions") or 0) + (0 if same else 1),
        }
        meta = (found or {}).get("metadata") or {"name": self.name, "namespace": self.namespace}
        return {"apiVersion": LEASE.version, "kind": LEASE.name, "metadata": meta, "spec": spec}
