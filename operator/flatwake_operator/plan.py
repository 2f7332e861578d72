"""What is to be done about a server: from the world to objects, without touching anything."""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from flatwake_service.manifest import AccessMode, Backend, Reason, Scheme, Strategy, parse_source

from flatwake_operator import devices, diff, kinds, labels, pins
from flatwake_operator.children import PLAIN, deployment, device, resolved, revision
from flatwake_operator.observe import World
from flatwake_operator.pods import Fault, Pod
from flatwake_operator.settings import Context, Decision, Object, Settings


@dataclass(frozen=True)
class Choice:
    """What a server's pods are made with, and why."""

    decision: Decision
    why_backend: str = ""
    why_strategy: str = ""


@dataclass(frozen=True)
class Plan:
    """What is wanted.

    revision: what the pin in force keeps; new: it must be written first. children: everything but
    the Deployment, in order. unwanted: children of ours that are no longer asked for.
    """

    context: Context
    pin: str
    revision: Object
    new: bool
    children: tuple[Object, ...]
    deployment: Object
    unwanted: tuple[Object, ...]


class RefusedError(Exception):
    """The spec can't be followed; the fault says which field to change."""

    def __init__(self, reason: Reason, message: str) -> None:
        self.fault = Fault(reason, message)
        super().__init__(message)


def pin_of(world: World) -> str:
    """The pin that the spec asks for; a missing ConfigMap is refused, and rolls nothing."""
    for place, value in world.config.items():
        if value is None:
            name, key = place.split("/", 1)
            raise RefusedError(
                Reason.REFERENCE_MISSING,
                f"ConfigMap {name} has no key {key}: create it, or change spec.model.chatTemplate",
            )
    return pins.pin(world.server, world.config, world.server.metadata.annotations.get(labels.ADOPT))


def held_revision(world: World, pin: str) -> Object | None:
    return world.child(kinds.REVISION, revision.revision_name(world.server.name, pin))


def choose(world: World, settings: Settings, all_pods: Iterable[Object] | None) -> Choice:
    """Decides for a new pin: backend, image, strategy, each with its reason."""
    spec = world.server.spec
    if spec.accelerator.claim and kinds.DEVICE not in world.apis:
        raise RefusedError(
            Reason.API_MISSING,
            f"this cluster doesn't serve {kinds.DEVICE.version}, which accelerator.claim needs: "
            "remove it to take the device plugin's resource, or upgrade the cluster",
        )
    backend, why_backend = _backend(world)
    image = spec.image or settings.images.get(backend)
    if not image:
        raise RefusedError(
            Reason.IMAGE_UNSET,
            f"the operator has no image for backend {backend}: set spec.image, or the chart's "
            f"images.{backend.lower()}",
        )
    strategy, why_strategy = _strategy(world, backend, all_pods)
    labelled = world.nodes is not None and devices.labelled(world.nodes)
    decision = Decision(image, backend, strategy, labelled)
    return Choice(decision, why_backend, why_strategy)


def _backend(world: World) -> tuple[Backend, str]:
    accelerator = world.server.spec.accelerator
    if accelerator.backend is not Backend.AUTO:
        return accelerator.backend, ", as spec.accelerator.backend says"
    if world.revisions:
        before = _in_force(world) or world.revisions[-1]
        return Backend(before["data"]["backend"]), _notes(before).get(labels.WHY_BACKEND, "")
    if accelerator.claim:
        return Backend.HIP, ", since accelerator.claim asks for a device"
    if world.nodes is None:
        raise RefusedError(
            Reason.BACKEND_UNDECIDED,
            "the operator may not see nodes, so it can't tell Auto: set "
            "spec.accelerator.backend to Hip or Cpu",
        )
    resource = accelerator.resource
    if devices.advertised(world.nodes, resource):
        return Backend.HIP, f", since a node advertised {resource}"
    return Backend.CPU, f", since no node advertised {resource} when the pods were first written"


def _in_force(world: World) -> Object | None:
    live = world.deployment
    pin = (live["metadata"].get("annotations") or {}).get(labels.PIN) if live else None
    return held_revision(world, pin) if pin else None


def _strategy(
    world: World, backend: Backend, all_pods: Iterable[Object] | None
) -> tuple[Strategy, str]:
    wanted = world.server.spec.rollout.strategy
    if wanted is not Strategy.AUTO:
        return wanted, ", as spec.rollout.strategy says"
    if backend is Backend.CPU:
        return _for_volume(world, None) or (Strategy.SURGE, ", since no device is needed")
    if world.server.spec.accelerator.claim:
        return Strategy.REPLACE, ", since free devices of a claim can't be counted"
    if world.nodes is None or all_pods is None:
        return Strategy.REPLACE, ", since the operator may not see nodes and pods"
    counted = devices.count(world.server, world.nodes, all_pods)
    by_volume = _for_volume(world, counted)
    if by_volume:
        return by_volume
    resource = world.server.spec.accelerator.resource
    spare = counted.total_free - _pods_to_come(world)
    if spare > 0:
        return Strategy.SURGE, f", since {spare} {resource} were free for one more pod"
    return Strategy.REPLACE, f", since no {resource} was free for one more pod"


def _pods_to_come(world: World) -> int:
    """Pods that will take a device before any rollout does."""
    spec = world.server.spec
    wanted = spec.autoscaling.min_replicas if spec.autoscaling else spec.replicas
    placed = [pod for pod in world.pods if not pod.unschedulable_since]
    return max(0, wanted - len(placed))


def _for_volume(world: World, counted: devices.Devices | None) -> tuple[Strategy, str] | None:
    """A volume that one pod or one node holds keeps a second pod from starting."""
    cache = world.server.spec.model.cache.claim
    source = parse_source(world.server.spec.model.source)
    if cache is None or source.scheme is Scheme.PVC:
        return None
    modes = set(cache.access_modes)
    if AccessMode.READ_WRITE_MANY in modes:
        return None
    # Only one node can mount it; a single node with a free device is known to be that one.
    alone = counted is not None and len(counted.free) == 1 and counted.total_free > 0
    if alone and AccessMode.READ_WRITE_ONCE in modes:
        return None
    return Strategy.REPLACE, ", since the model's volume is one node's"


def build(
    world: World, settings: Settings, pin: str, kept: Object | None, choice: Choice | None,
    operator_version: str,
) -> Plan:  # fmt: skip
    """All objects, from the revision that is kept or from a new choice."""
    new = kept is None
    if kept is None:
        assert choice is not None
        context = Context(world.server, settings, choice.decision)
        number = max((int(r["revision"]) for r in world.revisions), default=0) + 1
        kept = revision.build(context, pin, number, operator_version)
        kept["metadata"]["annotations"] |= {
            labels.WHY_BACKEND: choice.why_backend,
            labels.WHY_STRATEGY: choice.why_strategy,
        }
    else:
        context = Context(world.server, settings, revision.decision(kept))
    context = replace(context, decision=strategy_now(world, kept, context.decision))
    spec = dict(kept["data"]["deployment"])
    spec["strategy"] = deployment.strategy(context.decision.strategy)
    made = _children(world, context, kept)
    wanted = {(child["kind"], child["metadata"]["name"]) for child in made}
    return Plan(
        context=context,
        pin=pin,
        revision=kept,
        new=new,
        children=tuple(diff.stamped(child) for child in made),
        deployment=deployment.build(context, pin, spec),
        unwanted=tuple(_unwanted(world, wanted, pin)),
    )


def missing_api(world: World) -> str | None:
    """What was asked for and isn't made, since the cluster lacks its API."""
    if world.server.spec.endpoint.picker_ref and kinds.POOL not in world.apis:
        return (
            f"no InferencePool was made, since this cluster doesn't serve {kinds.POOL.version}: "
            "install the Gateway API inference extension, or remove endpoint.pickerRef"
        )
    return None


def strategy_now(world: World, kept: Object, decision: Decision) -> Decision:
    """rollout.strategy isn't part of the pin: what the spec names holds at once."""
    wanted = world.server.spec.rollout.strategy
    if wanted is not Strategy.AUTO:
        return replace(decision, strategy=wanted)
    turned = (kept["metadata"].get("annotations") or {}).get(labels.STRATEGY)
    return replace(decision, strategy=Strategy(turned)) if turned else decision


def _children(world: World, context: Context, kept: Object) -> list[Object]:
    made = []
    for kind, builder in PLAIN.items():
        if kind not in world.apis:
            continue
        child: Object | None
        if kind is kinds.DEVICE:
            claim = kept["data"].get("claim")
            child = device.template(context, claim) if claim else None
        else:
            child = builder(context)
        if child is not None:
            made.append(child)
    fact = _resolved(world, context)
    return [*made, fact] if fact else made


def _resolved(world: World, context: Context) -> Object | None:
    """What the source stood for when the first pod fetched it; kept while the source stays."""
    held = _held_model(world)
    if held:
        data, drifted = held["data"], _notes(held).get(labels.DRIFTED)
        if drifted is None and (pod := drifted_pod(world)):
            drifted = pod.uid
        return resolved.build(context, data.get("revision"), data["digest"], drifted)
    source = world.server.spec.model.source
    for pod in world.pods:
        model = pod.report.model if pod.report else None
        if pod.ready and model and model.digest and model.source == source:
            return resolved.build(context, model.revision, model.digest, None)
    return None


def _held_model(world: World) -> Object | None:
    held = world.child(kinds.CONFIG_MAP, f"{world.server.name}-model")
    data = (held or {}).get("data") or {}
    known = data.get("source") == world.server.spec.model.source and "digest" in data
    return held if known else None


def drifted_pod(world: World) -> Pod | None:
    """A pod that serves another model than the first one resolved the source to."""
    held = _held_model(world)
    if held is None:
        return None
    source, digest = held["data"]["source"], held["data"]["digest"]
    for pod in world.pods:
        model = pod.report.model if pod.report else None
        serves = pod.ready and not pod.terminating and model and model.source == source
        if serves and model and model.digest not in (None, digest):
            return pod
    return None


def _notes(thing: Object) -> dict[str, str]:
    notes: dict[str, str] = thing["metadata"].get("annotations") or {}
    return notes


def _unwanted(world: World, wanted: set[tuple[str, str]], pin: str) -> Iterable[Object]:
    kept_claims = set()
    revisions = [r for r in world.revisions if r["metadata"]["name"].removeprefix(
        f"{world.server.name}-") != pin]  # fmt: skip
    stale = revisions[: max(0, len(revisions) - (revision.KEPT - 1))]
    yield from stale
    for held in world.revisions:
        claim = held["data"].get("claim")
        if claim and held not in stale:
            kept_claims.add(device.claim_template_name(world.server.name, claim))
    for (kind, name), child in world.children.items():
        if kind in (kinds.DEPLOYMENT.name, kinds.REVISION.name, kinds.CLAIM.name):
            continue  # a volume's files are deleted with the server alone
        if kind == kinds.DEVICE.name and name in kept_claims:
            continue
        if (kind, name) not in wanted:
            yield child


def needs_apply(wanted: Object, live: Object | None) -> bool:
    """Whether an object must be written: absent, changed by us, or changed by someone else."""
    if live is None:
        return True
    held = (live["metadata"].get("annotations") or {}).get(labels.APPLIED)
    stamp = wanted["metadata"]["annotations"][labels.APPLIED]
    return held != stamp or bool(diff.differences(wanted, live))
