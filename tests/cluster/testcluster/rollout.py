"""A rolling update of two replicas, under users who stream all the while."""

from __future__ import annotations

import time
from dataclasses import dataclass

from testcluster import users
from testcluster.hub import Hub
from testcluster.kube import Kube
from testcluster.layout import Cluster
from testcluster.servers import Server, example
from testcluster.users import Users

USERS = 8
TOKENS = 400
"""Of each stream: more than a rollout takes."""
PATIENCE_S = 240


@dataclass(frozen=True)
class Rollout:
    """What the users saw of it. began: time.monotonic()'s; seconds: until both pods were new."""

    server: Server
    users: Users
    began: float
    seconds: float


def under_users(cluster: Cluster, kube: Kube, hub: Hub, namespace: str) -> Rollout:
    """Serve SmolLM2 twice, have everybody listen, change an engine setting."""
    engine = {"contextLength": 1024, "maxSequences": USERS}
    manifest = example(
        "smollm2.yaml", hub, engine=engine, replicas=2, accelerator={"backend": "Cpu"}
    )
    kube.apply(manifest, namespace=namespace)
    server = Server(kube, namespace, "smollm2")
    old = server.wait_for_pods("two pods", lambda ready: len(ready) == 2)
    with users.streaming(cluster, server.inside_url(), count=USERS, tokens=TOKENS) as streaming:
        streaming.all_hear(PATIENCE_S)
        began = time.monotonic()
        server.patch({"engine": {**engine, "prefillTokens": 256}})
        server.wait_for_pods(
            "two other pods", lambda ready: len(ready) == 2 and ready.isdisjoint(old)
        )
        seconds = time.monotonic() - began
        streaming.all_hear(PATIENCE_S)
    return Rollout(server, streaming, began, seconds)
