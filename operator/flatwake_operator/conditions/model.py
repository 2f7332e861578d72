"""ModelReady: fetched, verified, loaded."""

from collections.abc import Sequence
from dataclasses import replace

from flatwake_service.manifest import Backend, Phase, Reason, ServerStatus

from flatwake_operator.conditions.accelerator import DEVICE_REASONS
from flatwake_operator.conditions.facts import Condition, Facts, living, why_none
from flatwake_operator.pods import Pod
from flatwake_operator.settings import Object

PHASE_REASONS = {
    Phase.PREFLIGHT: Reason.STARTING,
    Phase.FETCHING: Reason.FETCHING,
    Phase.LOADING: Reason.LOADING,
    Phase.WARMING: Reason.WARMING,
    Phase.DRAINING: Reason.DRAINING,
}
PHASE_WORDS = {
    Phase.PREFLIGHT: "looking at its device",
    Phase.FETCHING: "fetching",
    Phase.LOADING: "loading",
    Phase.WARMING: "warming up",
    Phase.DRAINING: "draining",
}
CURES = {
    Reason.KEYS_MISSING: ": create the Secret that spec.access.apiKeysSecret names, or correct it; "
    "it takes effect within two minutes and rolls nothing",
}
"""What a pod can't know: where its files come from."""
SILENT = "hasn't said anything yet"
PERCENT_STEP = 5
"""Progress is written in steps, so that a slow download costs twenty writes and not thousands."""


def decide(facts: Facts, before: Sequence[Object] = ()) -> Condition:
    """From the pod that is furthest behind; `before` are the last conditions."""
    return _still_fetching(_of_pods(facts), before)


def _of_pods(facts: Facts) -> Condition:
    def condition(status: str, reason: Reason, message: str) -> Condition:
        return Condition("ModelReady", status, reason, message)

    if facts.drift:
        return condition("False", facts.drift.reason, facts.drift.message)
    current = living(facts.pods)
    on_device = facts.decision is not None and facts.decision.backend is Backend.HIP
    for pod in current:
        told_there = on_device and pod.fault and pod.fault.reason in DEVICE_REASONS
        if pod.fault and not told_there and not pod.ready:
            status = "Unknown" if pod.fault.reason is Reason.UNSCHEDULABLE else "False"
            return condition(status, pod.fault.reason, pod.fault.message + _since(pod))
    if not current:
        if facts.desired == 0:
            return condition("Unknown", Reason.SCALED_TO_ZERO, why_none(facts))
        return condition("Unknown", Reason.STARTING, "no pod of the present template exists yet")
    behind = [pod for pod in current if not pod.ready]
    if not behind:
        return _loaded(current[0], condition("True", Reason.SERVING, "the model is loaded"))
    pod = behind[0]
    if pod.report is None or pod.report.phase is None:
        if pod.fetched:
            return condition("False", Reason.LOADING, f"pod {pod.name} starts its server")
        return condition("False", Reason.STARTING, f"pod {pod.name} {SILENT}")
    if pod.report.phase is Phase.READY and pod.report.reason in (None, Reason.SERVING):
        return condition("False", Reason.WARMING, f"pod {pod.name} answers; its probe follows")
    if pod.report.phase in (Phase.READY, Phase.FAILED) or pod.report.reason is Reason.KEYS_MISSING:
        reason = pod.report.reason or Reason.STARTING
        text = pod.report.message or f"pod {pod.name} isn't ready"
        return condition("False", reason, text + CURES.get(reason, ""))
    reason, share = PHASE_REASONS[pod.report.phase], percent(tuple(behind))
    return condition("False", reason, f"pod {pod.name} is {_progress(pod.report, share)}")


def _still_fetching(model: Condition, before: Sequence[Object]) -> Condition:
    """A pod that said how far its download is stays at that until more is known: between its own
    last word and the kubelet's on its end, it can't be heard.
    """
    if not model.message.endswith(SILENT):
        return model
    for held in before:
        fetched = held["type"] == model.type and held["reason"] == Reason.FETCHING.value
        if fetched and held["message"].split()[:2] == model.message.split()[:2]:
            return replace(model, reason=Reason.FETCHING, message=held["message"])
    return model


def percent(pods: tuple[Pod, ...]) -> int | None:
    """How far the pod that is furthest behind has come, in steps; None if none says."""
    found = [share for pod in living(pods) if (share := _share(pod)) is not None]
    return min(found, default=None)


def _share(pod: Pod) -> int | None:
    if pod.ready:
        return 100
    if pod.report is None or not pod.report.model.bytes_total:
        return None
    share = 100 * (pod.report.model.bytes_done or 0) // pod.report.model.bytes_total
    return min(99, share - share % PERCENT_STEP)


def _progress(report: ServerStatus, share: int | None) -> str:
    assert report.phase is not None
    so_far = f" {share} %" if share is not None else ""
    total = report.model.bytes_total
    of = f" of {total / 1e9:.1f} GB" if total else ""
    return f"{PHASE_WORDS[report.phase]}{so_far}{of}"


def _since(pod: Pod) -> str:
    """What a pod that failed does meanwhile: a long download may follow a short fault."""
    if pod.report is None or pod.report.phase not in PHASE_REASONS:
        return ""
    return f"; it runs again and is {_progress(pod.report, _share(pod))}"


def _loaded(pod: Pod, plain: Condition) -> Condition:
    if pod.report is None:
        return plain
    reason = pod.report.reason if pod.report.reason is Reason.CONTEXT_REDUCED else plain.reason
    named = pod.report.model.name or "the model"
    digest = f", {pod.report.model.digest}" if pod.report.model.digest else ""
    more = f": {pod.report.message}" if reason is Reason.CONTEXT_REDUCED else ""
    return Condition("ModelReady", "True", reason, f"{named} is loaded{digest}{more}")
