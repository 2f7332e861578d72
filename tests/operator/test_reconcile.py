"""Reconcile against a real API server: what is made, what is mended, what is left alone."""

import itertools
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from apiserver import ApiServer
from flatwake_operator import kinds, labels
from flatwake_operator.settings import Object
from lab import Killed, Lab


@pytest.fixture
def lab(api: ApiServer) -> Iterator[Lab]:
    made = Lab(api)
    yield made
    made.close()


def test_a_server_becomes_its_children_and_then_nothing_is_written(lab: Lab) -> None:
    lab.create(replicas=2)
    lab.settle()
    deployment = lab.want(kinds.DEPLOYMENT)
    assert deployment["spec"]["replicas"] == 2
    assert not deployment["spec"].get("paused")
    for kind in (kinds.SERVICE, kinds.ACCOUNT, kinds.BUDGET):
        owner = lab.want(kind)["metadata"]["ownerReferences"][0]
        assert (owner["name"], owner["controller"]) == ("chat", True)
    assert len(lab.list(kinds.REVISION)) == 1
    lab.stop()
    lab.start()  # another process finds nothing to do either
    lab.pass_()
    assert lab.writes == []


def test_ready_follows_pods(lab: Lab) -> None:
    lab.create()
    lab.settle()
    assert lab.condition("Accepted") == ("True", "Accepted")
    assert lab.condition("AcceleratorReady") == ("True", "NotNeeded")
    assert lab.condition("Ready") == ("False", "Starting")
    lab.pod("a")
    lab.settle()
    assert lab.condition("Ready") == ("False", "Starting")
    lab.pod_ready("a")
    lab.all_available()
    lab.settle()
    assert lab.condition("Ready") == ("True", "Serving")
    status = lab.want(kinds.SERVER)["status"]
    assert status["readyReplicas"] == 1
    assert status["selector"] == "flatwake.dev/server=chat"
    assert status["endpoint"] == f"http://chat.{lab.namespace}.svc:8000/v1"
    assert status["observedGeneration"] == 1


def test_a_hand_edit_of_a_child_is_put_back(lab: Lab) -> None:
    lab.create()
    lab.settle()
    lab.patch(kinds.SERVICE, "chat", {"spec": {"selector": {"flatwake.dev/server": "other"}}})
    lab.patch(kinds.DEPLOYMENT, "chat", {"spec": {"replicas": 7}})
    args = {"name": "serve", "image": "evil"}
    lab.ok(
        "PATCH",
        kinds.DEPLOYMENT.path(lab.namespace, "chat"),
        {"spec": {"template": {"spec": {"containers": [args]}}}},
        "application/strategic-merge-patch+json",
    )
    lab.settle()
    assert lab.want(kinds.SERVICE)["spec"]["selector"] == {"flatwake.dev/server": "chat"}
    deployment = lab.want(kinds.DEPLOYMENT)
    assert deployment["spec"]["replicas"] == 1
    image = deployment["spec"]["template"]["spec"]["containers"][0]["image"]
    assert image == "localhost/flatwake-cpu:1"


def test_a_deleted_child_comes_back(lab: Lab) -> None:
    lab.create()
    lab.settle()
    for kind in (kinds.SERVICE, kinds.DEPLOYMENT, kinds.BUDGET):
        lab.ok("DELETE", kind.path(lab.namespace, "chat"))
    lab.settle()
    for kind in (kinds.SERVICE, kinds.DEPLOYMENT, kinds.BUDGET):
        lab.want(kind)


def test_what_others_add_stays(lab: Lab) -> None:
    lab.create()
    lab.settle()
    restarted = {"kubectl.kubernetes.io/restartedAt": "2026-01-01T00:00:00Z"}
    template = {"metadata": {"annotations": restarted}}
    lab.patch(kinds.DEPLOYMENT, "chat", {"spec": {"template": template}})
    lab.patch(kinds.SERVICE, "chat", {"metadata": {"annotations": {"other": "kept"}}})
    lab.settle()
    kept = lab.want(kinds.DEPLOYMENT)["spec"]["template"]["metadata"]["annotations"]
    assert kept.items() >= restarted.items()
    assert lab.want(kinds.SERVICE)["metadata"]["annotations"]["other"] == "kept"


def test_what_an_admission_webhook_takes_is_asked_for_once_and_forgotten_with_its_server(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    apply = lab.api.apply

    async def admitted(thing: Object, *more: Any, **named: Any) -> Object:
        made = await apply(thing, *more, **named)
        if made["kind"] == "Service":
            made["spec"]["ports"][0]["appProtocol"] = "h2c"
        return made

    monkeypatch.setattr(lab.api, "apply", admitted)
    lab.create()
    lab.settle()
    assert len(lab.reconciler.applier.beyond_us) == 1
    lab.ok("DELETE", kinds.SERVER.path(lab.namespace, "chat"))
    lab.pass_()
    assert lab.reconciler.applier.beyond_us == {}


def test_an_operator_upgrade_rolls_nothing_and_neither_does_the_first_scale(lab: Lab) -> None:
    lab.create()
    lab.settle()
    before = lab.want(kinds.DEPLOYMENT)["spec"]["template"]
    lab.stop()
    images = dict.fromkeys(lab.settings.images, "localhost/newer:2")
    lab.settings, lab.version = replace(lab.settings, images=images), "2"
    lab.start()
    lab.pass_()
    assert lab.writes == []
    lab.edit(replicas=3)
    lab.settle()
    live = lab.want(kinds.DEPLOYMENT)
    assert live["spec"]["replicas"] == 3
    assert live["spec"]["template"] == before
    lab.edit(limits={"queue": 5})
    lab.settle()
    template = lab.want(kinds.DEPLOYMENT)["spec"]["template"]
    assert template["spec"]["containers"][0]["image"] == "localhost/newer:2"
    assert len(lab.list(kinds.REVISION)) == 2


def test_adopting_takes_the_new_defaults(lab: Lab) -> None:
    lab.create()
    lab.settle()
    lab.stop()
    images = dict.fromkeys(lab.settings.images, "localhost/newer:2")
    lab.settings = replace(lab.settings, images=images)
    lab.start()
    lab.patch(kinds.SERVER, "chat", {"metadata": {"annotations": {labels.ADOPT: "2"}}})
    lab.settle()
    template = lab.want(kinds.DEPLOYMENT)["spec"]["template"]
    assert template["spec"]["containers"][0]["image"] == "localhost/newer:2"


def test_only_the_newest_two_revisions_are_kept(lab: Lab) -> None:
    lab.create()
    for queue in (1, 2, 3, 4):
        lab.edit(limits={"queue": queue})
        lab.settle()
    assert len(lab.list(kinds.REVISION)) == 2


def test_a_foreign_object_of_a_childs_name_is_left_alone(lab: Lab) -> None:
    foreign = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "chat"},
        "spec": {"ports": [{"port": 1}]},
    }
    made = lab.ok("POST", kinds.SERVICE.path(lab.namespace), foreign)
    lab.create()
    lab.settle()
    assert lab.condition("Accepted") == ("False", "NameTaken")
    assert lab.condition("Ready") == ("False", "NameTaken")
    found = lab.want(kinds.SERVICE)
    assert found["metadata"]["resourceVersion"] == made["metadata"]["resourceVersion"]
    assert lab.get(kinds.DEPLOYMENT) is None
    lab.ok("DELETE", kinds.SERVICE.path(lab.namespace, "chat"))
    lab.settle()
    assert lab.condition("Accepted") == ("True", "Accepted")


def test_replicas_belong_to_the_autoscaler_while_there_is_one(lab: Lab) -> None:
    lab.create(replicas=2)
    lab.settle()
    lab.edit(autoscaling={"maxReplicas": 8})
    lab.settle()
    assert lab.want(kinds.AUTOSCALER)["spec"]["scaleTargetRef"]["name"] == "chat"
    assert lab.want(kinds.DEPLOYMENT)["spec"]["replicas"] == 2
    lab.patch(kinds.DEPLOYMENT, "chat", {"spec": {"replicas": 5}}, "scale")
    lab.edit(limits={"queue": 5})
    lab.settle()
    assert lab.want(kinds.DEPLOYMENT)["spec"]["replicas"] == 5
    lab.edit(autoscaling=None)
    lab.settle()
    assert lab.get(kinds.AUTOSCALER) is None
    assert lab.want(kinds.DEPLOYMENT)["spec"]["replicas"] == 2


def test_a_template_that_kubernetes_refuses_is_named_and_changes_nothing(lab: Lab) -> None:
    lab.create()
    lab.settle()
    pin = lab.want(kinds.DEPLOYMENT)["metadata"]["annotations"][labels.PIN]
    lab.edit(template={"tolerations": [{"operator": "Sometimes"}]})
    lab.settle()
    assert lab.condition("Accepted") == ("False", "TemplateRefused")
    assert "Sometimes" in lab.conditions()["Accepted"]["message"]
    assert lab.want(kinds.DEPLOYMENT)["metadata"]["annotations"][labels.PIN] == pin
    assert len(lab.list(kinds.REVISION)) == 1
    lab.edit(template={"tolerations": [{"operator": "Exists"}]})
    lab.settle()
    assert lab.condition("Accepted") == ("True", "Accepted")


def test_a_misspelt_field_of_a_fragment_is_refused_too(lab: Lab) -> None:
    lab.create(template={"resources": {"request": {"cpu": "1"}}, "affinity": {"podAfinity": {}}})
    lab.settle()
    assert lab.condition("Accepted") == ("False", "TemplateRefused")
    assert "podAfinity" in lab.conditions()["Accepted"]["message"]


def test_the_chat_template_rolls_when_its_text_changes_and_a_missing_one_rolls_nothing(
    lab: Lab,
) -> None:
    template = {"metadata": {"name": "templates"}, "data": {"chat": "a"}}
    lab.create(model={"source": "file:///m", "chatTemplate": {"name": "templates", "key": "chat"}})
    lab.settle()
    assert lab.condition("Accepted") == ("False", "ReferenceMissing")
    lab.ok("POST", kinds.CONFIG_MAP.path(lab.namespace), template)
    lab.settle()
    assert lab.condition("Accepted") == ("True", "Accepted")

    def pin() -> str:
        return str(lab.want(kinds.DEPLOYMENT)["metadata"]["annotations"][labels.PIN])

    first = pin()
    lab.patch(kinds.CONFIG_MAP, "templates", {"data": {"chat": "b"}})
    lab.settle()
    second = pin()
    assert second != first
    lab.ok("DELETE", kinds.CONFIG_MAP.path(lab.namespace, "templates"))
    lab.settle()
    assert lab.condition("Accepted") == ("False", "ReferenceMissing")
    assert pin() == second


def test_a_server_being_deleted_gets_no_more_writes(lab: Lab) -> None:
    made = lab.create()
    lab.settle()
    path = kinds.SERVER.path(lab.namespace, "chat")
    lab.patch(kinds.SERVER, "chat", {"metadata": {"finalizers": ["example.com/other"]}})
    lab.ok("DELETE", path)
    lab.ok("DELETE", kinds.SERVICE.path(lab.namespace, "chat"))
    lab.pass_()
    assert lab.writes == []
    assert lab.get(kinds.SERVICE) is None
    assert made["metadata"].get("finalizers") is None


def test_killed_at_any_write_of_the_first_pass_it_converges(api: ApiServer) -> None:
    for point in itertools.count():
        lab = Lab(api)
        lab.create(replicas=2)
        finished = _killed_once(lab, point)
        _expect_whole(lab, point)
        lab.close()
        if finished:
            break
    assert point >= 8


def test_killed_at_any_write_of_a_change_it_converges(api: ApiServer) -> None:
    for point in itertools.count():
        lab = Lab(api)
        lab.create(replicas=2)
        lab.settle()
        lab.edit(limits={"queue": 9}, autoscaling={"maxReplicas": 3})
        finished = _killed_once(lab, point)
        _expect_whole(lab, point)
        assert "--queue" in _serve(lab)["args"]
        assert lab.get(kinds.AUTOSCALER) is not None
        lab.close()
        if finished:
            break
    assert point > 3


def _serve(lab: Lab) -> dict[str, Any]:
    template = lab.want(kinds.DEPLOYMENT)["spec"]["template"]
    return dict(template["spec"]["containers"][0])


def _expect_whole(lab: Lab, point: int) -> None:
    lab.settle()
    deployment = lab.want(kinds.DEPLOYMENT)
    assert deployment["spec"]["replicas"] == 2, f"killed at write {point}"
    assert not deployment["spec"].get("paused"), f"killed at write {point}"
    for kind in (kinds.SERVICE, kinds.BUDGET, kinds.DEPLOYMENT):
        assert [child["metadata"]["name"] for child in lab.list(kind)] == ["chat"]
    assert len(lab.list(kinds.REVISION)) <= 2
    assert lab.condition("Accepted") == ("True", "Accepted")


def _killed_once(lab: Lab, point: int) -> bool:
    """Runs a pass that dies at write `point`; says whether it ended before that."""
    lab.killed_after = point
    try:
        lab.pass_()
    except Killed:
        return False
    finally:
        lab.killed_after = None
        lab.stop()
        lab.start()
    return True
