"""Brings a plan into the cluster: writes what differs, in an order that may stop anywhere.

After any write the process may die; the next pass sees what is there and goes on from it.
"""

from flatwake_operator import diff, kinds
from flatwake_operator.api import MANAGER, SCALE_MANAGER, Api
from flatwake_operator.children import deployment
from flatwake_operator.observe import World
from flatwake_operator.plan import Plan, needs_apply
from flatwake_operator.settings import Object
from flatwake_operator.store import Key, Store, key_of

Mark = tuple[str, tuple[str, ...]]


class Applier:
    def __init__(self, api: Api, store: Store) -> None:
        self.api = api
        self.store = store
        self.beyond_us: dict[Key, dict[tuple[str, str], Mark]] = {}
        """By server, kind and name: what an apply left, which another wouldn't mend either."""

    def forget(self, server: Key) -> None:
        """Drops what is remembered of a server that is gone."""
        self.beyond_us.pop(server, None)

    async def try_out(self, plan: Plan) -> None:
        """Lets the API server judge a new template before anything is written."""
        await self.api.apply(diff.stamped(plan.deployment), dry_run=True)

    async def carry_out(self, world: World, plan: Plan) -> None:
        """All of a plan; raises ApiError at the first call that fails."""
        if plan.new:
            self.store.put(await self.api.apply(plan.revision))
        for child in plan.children:
            live = world.child(kinds.kind_of(child), child["metadata"]["name"])
            await self._apply(child, live)
        await self._deployment(world, plan)
        for child in plan.unwanted:
            await self.api.delete(child)
            self.store.remove(child)

    async def turn(self, revision: Object, annotations: dict[str, str]) -> None:
        """Adds to what a revision remembers beside its data, which can't change."""
        meta = revision["metadata"]
        kept = {key: meta[key] for key in ("name", "namespace", "labels", "ownerReferences")}
        kept["annotations"] = {**meta.get("annotations", {}), **annotations}
        whole = {key: revision[key] for key in ("apiVersion", "kind", "revision", "data")}
        self.store.put(await self.api.apply({**whole, "metadata": kept}))

    async def _deployment(self, world: World, plan: Plan) -> None:
        context = plan.context
        live = world.deployment
        if live is None:
            # Paused it makes no pods, so that its first ones already have the right number.
            spec = plan.deployment["spec"]
            paused = {**plan.deployment, "spec": {**spec, "paused": True}}
            live = await self._apply(diff.stamped(paused), None)
        replicas = context.server.spec.replicas
        if context.server.spec.autoscaling is None and live["spec"].get("replicas") != replicas:
            scale = deployment.replicas(context)
            live = await self.api.apply(scale, SCALE_MANAGER)
            self.store.put(live)
        await self._apply(diff.stamped(plan.deployment), live)

    async def _apply(self, wanted: Object, live: Object | None) -> Object:
        if live is not None and (not needs_apply(wanted, live) or self._is_beyond_us(wanted, live)):
            return live
        made = await self.api.apply(wanted, MANAGER)
        self.store.put(made)
        left = diff.differences(wanted, made)
        server, child = _place(wanted)
        if left:
            marks = self.beyond_us.setdefault(server, {})
            marks[child] = (diff.fingerprint(wanted), tuple(left))
        elif server in self.beyond_us:
            self.beyond_us[server].pop(child, None)
        return made

    def _is_beyond_us(self, wanted: Object, live: Object) -> bool:
        mark = (diff.fingerprint(wanted), tuple(diff.differences(wanted, live)))
        server, child = _place(wanted)
        return self.beyond_us.get(server, {}).get(child) == mark


def _place(wanted: Object) -> tuple[Key, tuple[str, str]]:
    server = key_of(wanted)
    assert server is not None, "every child has its server's label"
    return server, (wanted["kind"], wanted["metadata"]["name"])
