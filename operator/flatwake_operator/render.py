"""All children of a server, without a cluster: `flatwake render`."""

from collections.abc import Collection, Iterator
from typing import Any

import yaml
from flatwake_service.manifest import Backend, InferenceServer, Strategy

from flatwake_operator import kinds, pins
from flatwake_operator.children import PLAIN, deployment
from flatwake_operator.settings import Context, Decision, Object, Settings


def decide(server: InferenceServer, settings: Settings, backend: Backend) -> Decision:
    """What the operator would decide where a device is free and nodes carry labels."""
    chosen = server.spec.accelerator.backend
    backend = backend if chosen is Backend.AUTO else chosen
    strategy = server.spec.rollout.strategy
    return Decision(
        image=server.spec.image or settings.images.get(backend, ""),
        backend=backend,
        strategy=Strategy.SURGE if strategy is Strategy.AUTO else strategy,
        labelled=True,
    )


def children(
    context: Context, config: dict[str, str | None], apis: Collection[kinds.Kind] = kinds.CHILDREN
) -> Iterator[Object]:
    """The children in the order in which they are applied, of the APIs that a cluster has."""
    for kind in kinds.CHILDREN:
        if kind not in apis:
            continue
        if kind is kinds.DEPLOYMENT:
            pin = pins.pin(context.server, config, None)
            made = deployment.build(context, pin, deployment.spec(context, pin))
            if context.server.spec.autoscaling is None:
                made["spec"] = {"replicas": context.server.spec.replicas, **made["spec"]}
            yield made
        elif kind in PLAIN:
            child = PLAIN[kind](context)
            if child is not None:
                yield child


class _Plain(yaml.SafeDumper):
    """Writes a piece that appears twice twice: anchors are no help to a reader."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def text(objects: Iterator[Object]) -> str:
    """YAML documents."""
    return yaml.dump_all(objects, Dumper=_Plain, sort_keys=False, width=100, allow_unicode=True)
