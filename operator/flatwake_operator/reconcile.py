"""One pass over one InferenceServer: observe, plan, apply, say.

Level-triggered and idempotent: nothing is remembered between passes that the cluster doesn't hold,
but for what saves work.
"""

import logging
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from flatwake_service.manifest import (
    Backend,
    InferenceServer,
    ManifestError,
    Reason,
    Strategy,
    parse,
)

from flatwake_operator import conditions, crd, devices, kinds, labels, plan, status
from flatwake_operator.api import STATUS_MANAGER, Api
from flatwake_operator.apply import Applier
from flatwake_operator.children import revision
from flatwake_operator.conditions import Facts
from flatwake_operator.errors import ApiError
from flatwake_operator.events import Events
from flatwake_operator.observe import Observer, World
from flatwake_operator.plan import Plan, RefusedError
from flatwake_operator.pods import Fault
from flatwake_operator.settings import Object, Settings
from flatwake_operator.store import Key, Store

log = logging.getLogger(__name__)

POLL_SECONDS = 2.0
PENDING_SECONDS = 10.0
REFUSED_SECONDS = 60.0
SURGE_PATIENCE = timedelta(seconds=60)
SCHEMA = crd.schema()


@dataclass
class Reconciler:
    """Holds the hands (API, store) and does passes."""

    api: Api
    store: Store
    observer: Observer
    settings: Settings
    events: Events
    version: str

    def __post_init__(self) -> None:
        self.applier = Applier(self.api, self.store)

    async def reconcile(self, key: Key) -> float | None:
        """One pass; returns when to look again even if nothing wakes it."""
        raw = self.store.get(kinds.SERVER, *key)
        if raw is None or "deletionTimestamp" in raw["metadata"]:
            self.applier.forget(key)
            return None  # its children go by their owner references
        known, unknown = crd.prune({"spec": raw["spec"]}, SCHEMA)
        try:
            server = parse({**raw, **known, "status": None})
        except ManifestError as error:
            refusal = Fault(Reason.INVALID_SPEC, f"{error.field}: {error.message}")
            await self._say(raw, Facts(_generation(raw), refusal=refusal), None, None)
            return None
        note = f"; ignored, since newer than this operator: {', '.join(unknown)}" if unknown else ""
        world = await self.observer.world(server, raw)
        facts = Facts(
            _generation(raw),
            note=note,
            missing_api=plan.missing_api(world),
            resource=server.spec.accelerator.resource,
        )
        made: Plan | None = None
        trouble: ApiError | None = None
        try:
            made = await self._plan(world)
            await self.applier.carry_out(world, made)
            facts = replace(facts, drift=await self._end_drifted(world))
        except RefusedError as refused:
            facts = replace(facts, refusal=refused.fault)
        except ApiError as error:
            fault = Fault(Reason.RECONCILE_FAILED, str(error))
            if error.is_about_the_object:
                facts = replace(facts, refusal=Fault(Reason.TEMPLATE_REFUSED, error.message))
            else:
                facts, trouble = replace(facts, trouble=fault), error
        facts = await self._gather(facts, world, made)
        await self._say(raw, facts, server, made)
        if trouble is not None:
            raise trouble
        if made is not None:
            await self._turn_to_replace(facts, world, made)
        return _again(facts)

    async def _plan(self, world: World) -> Plan:
        pin = plan.pin_of(world)
        kept = plan.held_revision(world, pin)
        choice = None
        if kept is None:
            choice = plan.choose(world, self.settings, await self._pods_to_count(world))
        made = plan.build(world, self.settings, pin, kept, choice, self.version)
        wanted = [*made.children, made.deployment]
        for child in [*wanted, made.revision] if made.new else wanted:
            kind, name = kinds.kind_of(child), child["metadata"]["name"]
            if world.child(kind, name) is None and await self.observer.taken(
                child, world.server.metadata.uid
            ):
                raise RefusedError(
                    Reason.NAME_TAKEN,
                    f"{kind.name} {name} exists and isn't this server's: rename one of them",
                )
        if made.new:
            await self._try_out(made)
        return made

    async def _try_out(self, made: Plan) -> None:
        try:
            await self.applier.try_out(made)
        except ApiError as error:
            if error.is_about_the_object:
                text = f"{error.message}: correct spec.template"
                raise RefusedError(Reason.TEMPLATE_REFUSED, text) from error
            raise

    async def _pods_to_count(self, world: World) -> list[Object] | None:
        spec = world.server.spec
        counts = spec.rollout.strategy is Strategy.AUTO and world.nodes is not None
        if counts and spec.accelerator.backend is not Backend.CPU and not spec.accelerator.claim:
            return await self.observer.all_pods()
        return None

    async def _gather(self, facts: Facts, world: World, made: Plan | None) -> Facts:
        server = world.server
        key = (server.metadata.namespace or "default", server.name)
        deployment = self.store.get(kinds.DEPLOYMENT, *key)
        if deployment and not labels.is_owned(deployment, server.metadata.uid):
            deployment = None
        kept = self._kept(world, made, deployment)
        desired = server.spec.replicas
        if server.spec.autoscaling:
            desired = deployment["spec"].get("replicas", 1) if deployment else 1
        facts = replace(
            facts,
            desired=desired,
            deployment=deployment,
            pods=world.pods,
            autoscaler=self.store.get(kinds.AUTOSCALER, *key) if server.spec.autoscaling else None,
        )
        if kept is None:
            return facts
        notes = kept["metadata"].get("annotations") or {}
        decision = plan.strategy_now(world, kept, revision.decision(kept))
        facts = replace(
            facts,
            decision=decision,
            version=kept["data"]["version"],
            why_backend=notes.get(labels.WHY_BACKEND, ""),
            why_strategy=_why_strategy(server, notes),
        )
        counted = decision.backend is Backend.HIP and not server.spec.accelerator.claim
        if counted and world.nodes is not None:
            pending = any(pod.unschedulable_since for pod in world.pods)
            pods = await self.observer.all_pods() if pending else []
            if pods is not None:
                facts = replace(facts, devices=devices.count(server, world.nodes, pods))
        return facts

    def _kept(self, world: World, made: Plan | None, deployment: Object | None) -> Object | None:
        if made is not None:
            return made.revision
        pin = (deployment or {}).get("metadata", {}).get("annotations", {}).get(labels.PIN)
        return plan.held_revision(world, pin) if pin else None

    async def _end_drifted(self, world: World) -> Fault | None:
        """Deletes a pod that has another model than the first, once; a second one is a fault."""
        pod = plan.drifted_pod(world)
        if pod is None:
            return None
        text = f"pod {pod.name} has another model than the first pod of the same source"
        place = (world.server.metadata.namespace or "default", f"{world.server.name}-model")
        held = self.store.get(kinds.CONFIG_MAP, *place)
        mark = (held or {}).get("metadata", {}).get("annotations", {}).get(labels.DRIFTED)
        if mark != pod.uid:
            return Fault(Reason.DRIFTED, f"{text}, again: name a commit in spec.model.source")
        await self.events.say(world.raw, Reason.DRIFTED, f"{text}: deleted", warning=True)
        meta = {"name": pod.name, "namespace": place[0], "uid": pod.uid}
        await self.api.delete({"kind": kinds.POD.name, "metadata": meta})
        return None

    async def _turn_to_replace(self, facts: Facts, world: World, made: Plan) -> None:
        """A surge that finds no device would wait for ever: the old pod has to go first."""
        spec = world.server.spec
        decision = made.context.decision
        waiting = [pod for pod in facts.pods if pod.current and pod.unschedulable_since]
        if (
            spec.rollout.strategy is not Strategy.AUTO
            or decision.strategy is not Strategy.SURGE
            or decision.backend is not Backend.HIP
            or not waiting
            or not any(not pod.current and not pod.terminating for pod in facts.pods)
            or any(pod.terminating for pod in facts.pods)
        ):
            return
        since = max(pod.unschedulable_since for pod in waiting if pod.unschedulable_since)
        if datetime.now(UTC) - since < SURGE_PATIENCE:
            return
        why = f", since pod {waiting[0].name} found no device for 60 s"
        await self.applier.turn(
            self.store.get(kinds.REVISION, *_place(made.revision)) or made.revision,
            {labels.STRATEGY: Strategy.REPLACE.value, labels.WHY_STRATEGY: why},
        )

    async def _say(
        self, raw: Object, facts: Facts, server: InferenceServer | None, made: Plan | None
    ) -> None:
        before = raw.get("status") or {}
        decided = conditions.decide(facts, before.get("conditions") or [])
        now = datetime.now(UTC)
        wanted = status.build(facts, server, made, decided, before, now)
        if wanted == before:
            return
        meta = raw["metadata"]
        body = {
            "apiVersion": raw["apiVersion"],
            "kind": raw["kind"],
            "metadata": {"name": meta["name"], "namespace": meta["namespace"]},
            "status": wanted,
        }
        try:
            self.store.put(await self.api.apply(body, STATUS_MANAGER, part="status"))
        except ApiError as error:
            if error.status != 404:  # deleted meanwhile
                raise
            return
        await self._announce(raw, before, decided)

    async def _announce(
        self, raw: Object, before: Object, decided: list[conditions.Condition]
    ) -> None:
        old = {c["type"]: c for c in before.get("conditions") or []}
        for condition in decided:
            held = old.get(condition.type, {})
            if condition.type not in ("Accepted", "Ready", "ModelReady", "AcceleratorReady"):
                continue
            if (held.get("status"), held.get("reason")) == (condition.status, condition.reason):
                continue
            if condition.type == "Ready" and condition.status == "True":
                await self.events.say(raw, "Ready", condition.message, warning=False)
            elif condition.type != "Ready" and condition.status == "False":
                if condition.reason in QUIET_REASONS:
                    continue
                await self.events.say(raw, condition.reason, condition.message, warning=True)


QUIET_REASONS = set(conditions.PHASE_REASONS.values())
"""What every start goes through is no news."""


def _again(facts: Facts) -> float | None:
    if facts.refusal:
        return REFUSED_SECONDS
    living = [pod for pod in facts.pods if pod.current and not pod.terminating]
    if any(pod.unschedulable_since for pod in living):
        return PENDING_SECONDS
    if any(not pod.ready or pod.report is None for pod in living):
        return POLL_SECONDS
    return None


def _why_strategy(server: InferenceServer, notes: dict[str, str]) -> str:
    if server.spec.rollout.strategy is not Strategy.AUTO:
        return ", as spec.rollout.strategy says"
    return notes.get(labels.WHY_STRATEGY, "")


def _generation(raw: Object) -> int:
    return int(raw["metadata"].get("generation", 0))


def _place(thing: Object) -> tuple[Any, Any]:
    return thing["metadata"]["namespace"], thing["metadata"]["name"]
