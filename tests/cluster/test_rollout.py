"""A rolling update under users whose streams are longer than it."""

from __future__ import annotations

from testcluster import rollout
from testcluster.hub import Hub
from testcluster.kube import Kube
from testcluster.layout import Cluster


def test_a_rolling_update_fails_no_request_and_cuts_no_stream(
    cluster: Cluster, kube: Kube, release: str, hub: Hub, namespace: str
) -> None:
    rolled = rollout.under_users(cluster, kube, hub, namespace)
    answers = rolled.users.answers
    assert rolled.users.failures() == []
    spanning = rolled.users.spanning(rolled.began)
    assert len(spanning) == rollout.USERS, "everybody was listening when the rollout began"
    longest = max(answer.seconds for answer in answers)
    print(
        f"{len(answers)} streams of {rollout.TOKENS} tokens, none failed; rollout "
        f"{rolled.seconds:.0f} s, longest stream {longest:.0f} s"
    )
