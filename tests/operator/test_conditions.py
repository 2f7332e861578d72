"""Conditions are decided from facts alone: a table of worlds and what is said of them."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from flatwake_operator import conditions, pods
from flatwake_operator.conditions import Facts
from flatwake_operator.devices import Devices
from flatwake_operator.pods import Fault, Pod
from flatwake_operator.settings import Decision
from flatwake_service.manifest import (
    Backend,
    DeviceStatus,
    ModelStatus,
    Phase,
    Reason,
    ServerStatus,
    Strategy,
)

CPU = Decision("image", Backend.CPU, Strategy.SURGE)
HIP = Decision("image", Backend.HIP, Strategy.REPLACE)
NOW = datetime(2026, 1, 1, tzinfo=UTC)
READY = ServerStatus(
    phase=Phase.READY,
    reason=Reason.SERVING,
    model=ModelStatus(name="chat", digest="sha256:abc"),
    device=DeviceStatus(name="Instinct", architecture="gfx942"),
)


def deployment(available: int = 1, generation: int = 1, observed: int = 1) -> dict[str, Any]:
    counts = ("replicas", "updatedReplicas", "availableReplicas")
    status = {"observedGeneration": observed, **dict.fromkeys(counts, available)}
    return {"metadata": {"generation": generation}, "spec": {}, "status": status}


def pod(**changes: Any) -> Pod:
    plain = Pod(
        name="a", uid="a", current=True, ready=True, terminating=False, ip="1", pin="p",
        fault=None, report=READY,
    )  # fmt: skip
    return replace(plain, **changes)


def starting(phase: Phase, **model: int) -> Pod:
    return pod(ready=False, report=ServerStatus(phase=phase, model=ModelStatus(**model)))


def broken(reason: Reason) -> Pod:
    return pod(ready=False, report=None, fault=Fault(reason, "words"))


def waiting(why: str = "Insufficient amd.com/gpu") -> Pod:
    fault = Fault(Reason.UNSCHEDULABLE, f"pod a: 0/1 nodes: {why}")
    return pod(ready=False, report=None, fault=fault, unschedulable_since=NOW)


SERVING = Facts(1, decision=CPU, deployment=deployment(), pods=(pod(),), resource="amd.com/gpu")


def said(facts: Facts) -> dict[str, tuple[str, str]]:
    return {c.type: (c.status, c.reason.value) for c in conditions.decide(facts)}


def test_all_is_well() -> None:
    assert said(SERVING) == {
        "Accepted": ("True", "Accepted"),
        "AcceleratorReady": ("True", "NotNeeded"),
        "ModelReady": ("True", "Serving"),
        "Progressing": ("False", "UpToDate"),
        "Ready": ("True", "Serving"),
    }


def test_of_nothing_nothing_is_ready() -> None:
    found = said(Facts(1))
    assert found["Ready"][0] == "False"
    assert {found[kind][0] for kind in ("AcceleratorReady", "ModelReady", "Progressing")} == {
        "Unknown"
    }


def test_a_pod_that_has_fetched_does_not_start_anew_before_its_server_does() -> None:
    """Its download is over, and neither it nor the kubelet has said so yet."""
    fetching = replace(SERVING, pods=(starting(Phase.FETCHING, bytes_total=1000, bytes_done=999),))
    before = conditions.written(conditions.decide(fetching), 1, [], NOW)
    silent = replace(fetching, pods=(replace(fetching.pods[0], report=None),))
    reasons = {c.type: c.reason.value for c in conditions.decide(silent, before)}
    assert (reasons["ModelReady"], reasons["Ready"]) == ("Fetching", "Fetching")
    other = replace(silent, pods=(replace(silent.pods[0], name="another"),))
    reasons = {c.type: c.reason.value for c in conditions.decide(other, before)}
    assert reasons["ModelReady"] == "Starting"


@pytest.mark.parametrize(
    ("desired", "text"),
    [
        (1, "0 of 1 pod is of this template, 0 available; "),
        (2, "0 of 2 pods are of this template, 0 available; "),
    ],
)
def test_a_start_says_how_far_it_is(desired: int, text: str) -> None:
    facts = replace(SERVING, desired=desired, deployment=deployment(0), pods=())
    (found,) = (c for c in conditions.decide(facts) if c.type == "Progressing")
    assert found.message.startswith(text)


NOT_READY: list[Any] = [
    pytest.param(
        replace(SERVING, refusal=Fault(Reason.INVALID_SPEC, "x")),
        {"Accepted": ("False", "InvalidSpec"), "Ready": ("False", "InvalidSpec")},
        id="a spec that can't be followed, even while pods serve",
    ),
    pytest.param(
        replace(SERVING, trouble=Fault(Reason.RECONCILE_FAILED, "x")),
        {"Accepted": ("Unknown", "ReconcileFailed"), "Ready": ("False", "ReconcileFailed")},
        id="an operator in trouble",
    ),
    pytest.param(
        replace(SERVING, desired=0, pods=(), deployment=deployment(0)),
        {"Ready": ("False", "ScaledToZero"), "ModelReady": ("Unknown", "ScaledToZero")},
        id="no pod wanted",
    ),
    pytest.param(
        replace(SERVING, deployment=deployment(observed=0)),
        {"Progressing": ("True", "Starting"), "Ready": ("False", "Starting")},
        id="a Deployment that hasn't seen its newest spec",
    ),
    pytest.param(
        replace(SERVING, desired=2, deployment=deployment(2), pods=(pod(), pod(current=False))),
        {"Ready": ("True", "Serving")},
        id="an old pod that the Deployment no longer counts",
    ),
    pytest.param(
        replace(SERVING, desired=2, deployment=deployment(1), pods=(pod(), pod(current=False))),
        {"Progressing": ("True", "RollingOut"), "Ready": ("False", "RollingOut")},
        id="a rollout",
    ),
    pytest.param(
        replace(SERVING, pods=(starting(Phase.FETCHING, bytes_total=1000, bytes_done=377),)),
        {"ModelReady": ("False", "Fetching"), "Ready": ("False", "Fetching")},
        id="a download",
    ),
    pytest.param(
        replace(SERVING, pods=(pod(), starting(Phase.LOADING))),
        {"ModelReady": ("False", "Loading"), "Ready": ("False", "Loading")},
        id="one pod loads while another serves",
    ),
    *(
        pytest.param(
            replace(SERVING, pods=(broken(reason),)),
            {"ModelReady": ("False", reason.value), "Ready": ("False", reason.value)},
            id=reason.value,
        )
        for reason in (
            Reason.OOM_KILLED,
            Reason.CRASH_LOOP,
            Reason.DIGEST_MISMATCH,
            Reason.CACHE_FULL,
            Reason.IMAGE_UNAVAILABLE,
            Reason.CONTAINER_CONFIG,
            Reason.EVICTED,
        )
    ),
    *(
        pytest.param(
            replace(SERVING, decision=HIP, pods=(broken(reason),)),
            {"AcceleratorReady": ("False", reason.value), "Ready": ("False", reason.value)},
            id=reason.value,
        )
        for reason in sorted(conditions.DEVICE_REASONS - {Reason.DEVICES_SHORT})
    ),
    pytest.param(
        replace(SERVING, decision=HIP, pods=(waiting(),), devices=Devices(2, 2, {"n": 0})),
        {"AcceleratorReady": ("False", "DevicesShort"), "Ready": ("False", "DevicesShort")},
        id="no free device",
    ),
    pytest.param(
        replace(SERVING, decision=HIP, pods=(waiting(),)),
        {"AcceleratorReady": ("False", "DevicesShort")},
        id="no free device, seen by the scheduler alone",
    ),
    pytest.param(
        replace(SERVING, decision=HIP, pods=(waiting("1 cannot allocate all claims"),)),
        {"AcceleratorReady": ("False", "DevicesShort")},
        id="no device that fits a claim",
    ),
    pytest.param(
        replace(SERVING, decision=HIP, pods=(waiting(),), devices=Devices(1, 1, {"n": 1})),
        {"AcceleratorReady": ("Unknown", "Starting")},
        id="a device that has just come free, before the scheduler looks again",
    ),
    pytest.param(
        replace(SERVING, pods=(broken(Reason.DEVICE_HUNG),)),
        {"ModelReady": ("False", "DeviceHung"), "Ready": ("False", "DeviceHung")},
        id="an engine that hangs on a CPU",
    ),
    pytest.param(
        replace(SERVING, deployment=deployment(0), pods=(waiting(),)),
        {"ModelReady": ("Unknown", "Unschedulable"), "Ready": ("False", "Unschedulable")},
        id="a pod without a node, for another reason than its device",
    ),
    pytest.param(
        replace(
            SERVING,
            decision=HIP,
            deployment=deployment(0),
            pods=(waiting(), pod(current=False, terminating=True)),
        ),
        {
            "Progressing": ("True", "WaitingForDevice"),
            "AcceleratorReady": ("Unknown", "WaitingForDevice"),
        },
        id="a pod that waits for a draining one's device, which is no fault",
    ),
    pytest.param(
        replace(
            SERVING,
            pods=(
                pod(
                    ready=False,
                    report=ServerStatus(
                        phase=Phase.READY, reason=Reason.KEYS_MISSING, message="no key"
                    ),
                ),
            ),
        ),
        {"ModelReady": ("False", "KeysMissing"), "Ready": ("False", "KeysMissing")},
        id="keys are asked for and there are none",
    ),
]


@pytest.mark.parametrize(("facts", "expected"), NOT_READY)
def test_what_is_said(facts: Facts, expected: dict[str, tuple[str, str]]) -> None:
    found = said(facts)
    assert {kind: found[kind] for kind in expected} == expected


def test_a_shortage_says_needed_and_free() -> None:
    facts = replace(SERVING, decision=HIP, pods=(waiting(),), devices=Devices(2, 2, {"n": 0}))
    message = conditions.decide(facts)[1].message
    assert "1 needed, 0 free of 2" in message


def test_a_broken_device_shows_and_pods_that_run_stay_ready() -> None:
    facts = replace(SERVING, decision=HIP, devices=Devices(2, 1, {"n": 1}))
    found = said(facts)
    assert found["AcceleratorReady"] == ("True", "DeviceUnhealthy")
    assert found["Ready"] == ("True", "Serving")


def test_a_failing_autoscaler_shows() -> None:
    failing = {"type": "ScalingActive", "status": "False", "message": "no metrics"}
    facts = replace(SERVING, autoscaler={"status": {"conditions": [failing]}})
    assert said(facts)["Progressing"] == ("True", "AutoscalerFailed")


def test_without_a_pod_it_is_said_what_makes_one() -> None:
    def message(facts: Facts) -> str:
        return {c.type: c.message for c in conditions.decide(facts)}["Ready"]

    none = replace(SERVING, pods=(), desired=0)
    assert message(none).endswith("raise replicas")
    # spec.replicas isn't looked at then, and an autoscaler is off while there is no pod.
    scaled = replace(none, autoscaler={"metadata": {"name": "chat"}})
    assert message(scaled).endswith("kubectl scale deployment chat --replicas=1")


def test_progress_moves_in_steps_and_names_the_pod_furthest_behind() -> None:
    slow = starting(Phase.FETCHING, bytes_total=1000, bytes_done=377)
    fast = starting(Phase.FETCHING, bytes_total=1000, bytes_done=900)
    assert conditions.percent((fast, slow)) == 35
    assert conditions.percent((pod(), fast)) == 90
    assert conditions.percent((pod(),)) == 100
    assert conditions.percent((starting(Phase.FETCHING),)) is None


def test_what_still_answers_is_said_while_new_pods_fail() -> None:
    def message(*old: Pod) -> str:
        facts = replace(SERVING, pods=(broken(Reason.IMAGE_UNAVAILABLE), *old))
        return {c.type: c.message for c in conditions.decide(facts)}["Ready"]

    assert message() == "words"
    assert message(pod(current=False)).endswith("earlier template that still answer: 1")


@pytest.mark.parametrize(
    ("phase", "words"),
    [
        (Phase.PREFLIGHT, "pod a is looking at its device"),
        (Phase.FETCHING, "pod a is fetching"),
        (Phase.LOADING, "pod a is loading"),
        (Phase.WARMING, "pod a is warming up"),
        (Phase.DRAINING, "pod a is draining"),
    ],
)
def test_what_a_pod_does_is_said_in_words(phase: Phase, words: str) -> None:
    facts = replace(SERVING, deployment=deployment(0), pods=(starting(phase),))
    (found,) = (c for c in conditions.decide(facts) if c.type == "ModelReady")
    assert found.message == words


def test_a_download_that_goes_on_after_a_fault_says_how_far_it_is() -> None:
    fault = Fault(Reason.SOURCE_UNREACHABLE, "pod a: HTTP 503 (1 restart)")
    fetching = starting(Phase.FETCHING, bytes_done=4 * 10**9, bytes_total=8 * 10**9)
    facts = replace(SERVING, deployment=deployment(0), pods=(replace(fetching, fault=fault),))
    found = {c.type: c for c in conditions.decide(facts)}
    for kind in ("ModelReady", "Ready"):
        assert found[kind].reason is Reason.SOURCE_UNREACHABLE
        assert found[kind].message == (
            "pod a: HTTP 503 (1 restart); it runs again and is fetching 50 % of 8.0 GB"
        )


def test_a_server_that_starts_after_its_fetch_is_no_step_back() -> None:
    between = replace(SERVING, pods=(pod(ready=False, report=None, fetched=True),))
    assert said(between)["ModelReady"] == ("False", "Loading")
    answering = replace(SERVING, pods=(pod(ready=False),))
    assert said(answering)["ModelReady"] == ("False", "Warming")


@pytest.mark.parametrize(
    ("state", "fetched"),
    [
        ({"running": {}}, False),
        ({"terminated": {"exitCode": 1}}, False),
        ({"terminated": {"exitCode": 0}}, True),
    ],
)
def test_a_fetch_that_ended_well_is_seen(state: dict[str, Any], fetched: bool) -> None:
    container = {"name": "fetch", "restartCount": 0, "ready": False, "state": state}
    status = {"initContainerStatuses": [container]}
    raw = {"metadata": {"name": "a", "uid": "a"}, "spec": {}, "status": status}
    assert pods.view(raw, None, None).fetched is fetched


def test_the_time_changes_only_with_the_status() -> None:
    first = conditions.written(conditions.decide(SERVING), 1, [], NOW)
    later = NOW + timedelta(hours=1)
    again = conditions.written(conditions.decide(SERVING), 2, first, later)
    assert {c["lastTransitionTime"] for c in again} == {"2026-01-01T00:00:00Z"}
    assert {c["observedGeneration"] for c in again} == {2}
    rolled = replace(SERVING, desired=2)
    changed = conditions.written(conditions.decide(rolled), 2, first, later)
    times = {c["type"]: c["lastTransitionTime"] for c in changed}
    assert times["Ready"] == "2026-01-01T01:00:00Z"
    assert times["Accepted"] == "2026-01-01T00:00:00Z"


def status(**fields: Any) -> dict[str, Any]:
    return {"metadata": {"name": "a", "uid": "u"}, "status": fields}


def container(**state: Any) -> dict[str, Any]:
    return {"name": "serve", "restartCount": 3, "ready": False} | state


def ended(**fields: Any) -> dict[str, Any]:
    return {"terminated": {"exitCode": 1, **fields}}


BACK_OFF = {"waiting": {"reason": "CrashLoopBackOff"}}
POD_FAULTS: list[Any] = [
    pytest.param(
        [container(state=BACK_OFF, lastState=ended(
            message='{"reason": "DigestMismatch", "message": "found x, wanted y"}'))],
        Reason.DIGEST_MISMATCH, "found x, wanted y (3 restarts); see spec.model.digest",
        id="its own words, and where the manifest has what they are about",
    ),
    pytest.param(
        [container(restartCount=1, state=BACK_OFF, lastState=ended(
            message='{"reason": "EngineFailed", "message": "the engine ended"}'))],
        Reason.ENGINE_FAILED, "pod a: the engine ended (1 restart)", id="its own words alone",
    ),
    pytest.param(
        [container(state=BACK_OFF, lastState=ended(message="Traceback\nKeyError: 1"))],
        Reason.CRASH_LOOP, "KeyError: 1: see kubectl logs a -c serve -p", id="a crash",
    ),
    pytest.param(
        [container(state=BACK_OFF, lastState=ended(reason="OOMKilled", exitCode=137))],
        Reason.OOM_KILLED, "raise spec.template.resources.limits.memory", id="out of memory",
    ),
    pytest.param(
        [container(state=BACK_OFF, lastState=ended(reason="OOMKilled", exitCode=1,
            message='{"reason": "EngineFailed", "message": "the engine ended by signal 9"}'))],
        Reason.OOM_KILLED, "raise spec.template", id="out of memory, as the server saw it",
    ),
    pytest.param(
        [container(state={"running": {}}, lastState=ended(
            message='{"reason": "DeviceHung", "message": "device hung: 61 s"}'))],
        Reason.DEVICE_HUNG, "device hung: 61 s", id="what ended it, while it starts again",
    ),
    pytest.param(
        [container(state={"waiting": {"reason": "ImagePullBackOff", "message": "no such"}})],
        Reason.IMAGE_UNAVAILABLE, "no such: check spec.image", id="no image",
    ),
    pytest.param(
        [container(state={"waiting": {"reason": "CreateContainerConfigError",
                                      "message": 'secret "x" not found'}})],
        Reason.CONTAINER_CONFIG, 'secret "x" not found: create what', id="a missing Secret",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("containers", "reason", "words"), POD_FAULTS)
def test_what_ails_a_pod(containers: list[Any], reason: Reason, words: str) -> None:
    found = pods.view(status(containerStatuses=containers), None, None).fault
    assert found is not None
    assert found.reason is reason
    assert words in found.message


def test_a_pod_that_once_ended_and_serves_now_is_well() -> None:
    well = {**container(state={"running": {}}, lastState=ended()), "ready": True}
    assert pods.view(status(containerStatuses=[well]), None, None).fault is None


def evicted(minutes: float, message: str) -> dict[str, Any]:
    stamp = (NOW - timedelta(minutes=minutes)).isoformat()
    ended = {"type": "DisruptionTarget", "status": "True", "lastTransitionTime": stamp}
    return status(phase="Failed", reason="Evicted", message=message, conditions=[ended])


def test_an_evicted_pod_says_why_for_a_while() -> None:
    volume = 'Usage of EmptyDir volume "flatwake-cache" exceeds the limit "20Mi"'
    found = pods.failed_lately([evicted(5, "older"), evicted(1, volume)], {}, NOW)
    assert found is not None
    assert found.reason is Reason.EVICTED
    assert volume in found.message
    assert "raise spec.model.cache.size" in found.message
    assert pods.failed_lately([evicted(11, "long ago")], {}, NOW) is None
    other = {"metadata": {"annotations": {"flatwake.dev/pin": "newer"}}}
    assert pods.failed_lately([evicted(1, "of an older template")], other, NOW) is None
