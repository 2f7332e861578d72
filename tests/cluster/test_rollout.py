"""A rolling update under users whose streams are longer than it."""

from __future__ import annotations

import time

from testcluster import users
from testcluster.hub import Hub
from testcluster.kube import Kube
from testcluster.layout import Cluster
from testcluster.servers import Server, example

USERS = 8
TOKENS = 400


def test_a_rolling_update_fails_no_request_and_cuts_no_stream(
    cluster: Cluster, kube: Kube, release: str, hub: Hub, namespace: str
) -> None:
    engine = {"contextLength": 1024, "maxSequences": 8}
    manifest = example(
        "smollm2.yaml", hub, engine=engine, replicas=2, accelerator={"backend": "Cpu"}
    )
    kube.apply(manifest, namespace=namespace)
    server = Server(kube, namespace, "smollm2")
    old = server.wait_for_pods("two pods", lambda ready: len(ready) == 2)

    with users.streaming(cluster, server.inside_url(), count=USERS, tokens=TOKENS) as streaming:
        streaming.all_hear(timeout_s=120)
        began = time.monotonic()
        server.patch({"engine": {**engine, "prefillTokens": 256}})
        server.wait_for_pods(
            "two other pods", lambda ready: len(ready) == 2 and ready.isdisjoint(old)
        )
        rolled = time.monotonic()
        streaming.all_hear(timeout_s=120)

    assert streaming.failures() == []
    spanning = streaming.spanning(began)
    assert len(spanning) == USERS, "everybody was listening when the rollout began"
    print(
        f"{len(streaming.answers)} streams of {TOKENS} tokens, none failed; rollout "
        f"{rolled - began:.0f} s, longest stream {max(a.seconds for a in streaming.answers):.0f} s"
    )
