"""Bad specs are refused by a real API server, with our own messages: one test a rule."""

import copy
import itertools
from typing import Any

import pytest
from apiserver import ApiServer
from flatwake_operator.crd import schema
from flatwake_service.manifest import ManifestError, parse

PATH = "/apis/flatwake.dev/v1alpha1/namespaces/default/inferenceservers"
_numbers = itertools.count()


def server(name: str = "", **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "flatwake.dev/v1alpha1",
        "kind": "InferenceServer",
        "metadata": {"name": name or f"s{next(_numbers)}"},
        "spec": {"model": {"source": "hf://org/repo"}} | spec,
    }


def model(**fields: Any) -> dict[str, Any]:
    return {"source": "hf://org/repo"} | fields


REFUSED: list[Any] = [
    pytest.param(server("a" * 41), "at most 40 characters", id="a long name"),
    pytest.param(server("1a"), "begin with a letter", id="a name that begins with a digit"),
    pytest.param(
        server(model=model(source="http://h/m.gguf")), "add model.digest", id="plain http"
    ),
    pytest.param(
        server(model=model(source="pvc://c/m", cache={"claim": {}})),
        "remove model.cache.claim",
        id="a claim for a claim",
    ),
    pytest.param(server(model=model(aliases=["a", "a"])), "appears twice", id="alias twice"),
    pytest.param(
        server(model=model(name="a", aliases=["a"])), "among model.aliases", id="name as alias"
    ),
    pytest.param(server(model=model(cache={"size": "0"})), "more than 0", id="no room"),
    pytest.param(
        server(model=model(cache={"claim": {"name": "a", "storageClassName": "b"}})),
        "own storage class",
        id="a class for an existing claim",
    ),
    pytest.param(
        server(model=model(cache={"claim": {}}), replicas=2),
        "several replicas share",
        id="replicas that can't share a claim",
    ),
    pytest.param(
        server(model=model(cache={"claim": {}}), autoscaling={"maxReplicas": 2}),
        "several replicas share",
        id="an autoscaler over a claim that can't be shared",
    ),
    pytest.param(
        server(accelerator={"backend": "Cpu", "claim": {}}), "takes no device", id="a CPU's claim"
    ),
    pytest.param(
        server(autoscaling={"minReplicas": 3, "maxReplicas": 2}), "more than maxRepl", id="range"
    ),
    *(
        pytest.param(
            server(limits={field: "0s"}), f"{field} must be more than 0s", id=f"{field} of 0s"
        )
        for field in ("queueTimeout", "requestTimeout", "stepTimeout", "drainTimeout")
    ),
    pytest.param(server(limits={"bodyBytes": "1"}), "at least 1Ki", id="tiny bodies"),
    pytest.param(server(startupTimeout="1s"), "at least 10s", id="a hasty start"),
    pytest.param(
        server(access={"metricsFrom": [{}]}), "set access.from too", id="metricsFrom alone"
    ),
    pytest.param(
        server(template={"env": [{"name": "ROCR_VISIBLE_DEVICES"}]}),
        "hide the device",
        id="hidden devices",
    ),
    pytest.param(
        server(template={"labels": {"flatwake.dev/x": "y"}}), "are the operator's", id="our label"
    ),
    pytest.param(
        server(template={"annotations": {"flatwake.dev/x": "y"}}),
        "are the operator's",
        id="our annotation",
    ),
    pytest.param(
        server(template={"volumes": [{"name": "flatwake-x"}]}), "are the operator's", id="volume"
    ),
]


@pytest.mark.parametrize(("body", "message"), REFUSED)
def test_refused_by_the_api_server_and_by_the_models_alike(
    api: ApiServer, body: dict[str, Any], message: str
) -> None:
    status, answer = api.call("POST", PATH, body)
    assert status == 422, answer
    assert message in answer["message"]
    with pytest.raises(ManifestError) as caught:
        parse(copy.deepcopy(body))
    assert message in str(caught.value)


def test_every_rule_has_a_case() -> None:
    messages = {rule["message"] for rule in _rules(schema())}
    covered = [case.values[1] for case in REFUSED] + ["can't be changed or removed", "can't shrink"]
    assert [m for m in messages if not any(part in m for part in covered)] == []


def _rules(node: dict[str, Any]) -> list[dict[str, str]]:
    found = list(node.get("x-kubernetes-validations", []))
    for inner in node.get("properties", {}).values():
        found += _rules(inner)
        found += _rules(inner.get("items", {}))
    return found


CHANGES = [
    pytest.param({"size": "30Gi", "claim": {}}, None, id="a growing claim is taken"),
    pytest.param({"size": "10Gi", "claim": {}}, "can't shrink", id="a shrinking one isn't"),
    pytest.param({"size": "20Gi"}, "can't be changed or removed", id="nor one removed"),
    pytest.param(
        {"claim": {"storageClassName": "x"}}, "can't be changed or removed", id="nor one changed"
    ),
]


@pytest.mark.parametrize(("cache", "message"), CHANGES)
def test_a_claim_only_grows(api: ApiServer, cache: dict[str, Any], message: str | None) -> None:
    body = server(model=model(cache={"claim": {}}))
    status, made = api.call("POST", PATH, body)
    assert status == 201, made
    made["spec"]["model"]["cache"] = cache
    status, answer = api.call("PUT", f"{PATH}/{made['metadata']['name']}", made)
    assert status == (200 if message is None else 422), answer
    assert message is None or message in answer["message"]


def test_the_shortest_manifest_gets_its_defaults_and_parses_to_the_same_spec(
    api: ApiServer,
) -> None:
    body = server()
    status, stored = api.call("POST", PATH, body)
    assert status == 201, stored
    assert stored["spec"]["engine"]["maxSequences"] == 8
    assert stored["spec"]["model"]["cache"] == {"size": "20Gi"}
    assert parse(stored).spec == parse(body).spec


FULL = server(
    image="localhost/x:1",
    imagePullSecrets=[{"name": "pull"}],
    model={
        "source": "hf://org/repo@v1/m.gguf",
        "digest": "sha256:" + "0" * 64,
        "name": "big",
        "aliases": ["b"],
        "chatTemplate": {"name": "templates", "key": "chat.jinja"},
        "tokenSecret": {"name": "hf", "key": "token"},
        "cache": {"size": "1Gi", "claim": {"accessModes": ["ReadWriteMany"]}},
    },
    accelerator={
        "backend": "Hip",
        "resource": "amd.com/cpx_nps1",
        "architectures": ["gfx942"],
        "minMemory": "64Gi",
        "renderGroups": [44, 109],
        "claim": {"selectors": [{"cel": {"expression": "true"}}]},
    },
    replicas=2,
    autoscaling={"minReplicas": 1, "maxReplicas": 4, "metric": "Cpu", "target": 70},
    engine={
        "maxSequences": 16,
        "contextLength": 4096,
        "prefillTokens": 256,
        "kvCache": {"memoryFraction": 0.8, "dtype": "BFloat16"},
        "graphs": "Off",
    },
    limits={
        "queue": 8,
        "queueTimeout": "1s",
        "requestTimeout": "1m",
        "stepTimeout": "5s",
        "bodyBytes": "1Mi",
        "drainTimeout": "30s",
    },
    startupTimeout="3m",
    rollout={"strategy": "Surge"},
    access={
        "apiKeysSecret": {"name": "keys"},
        "corsOrigins": ["*"],
        "from": [{"podSelector": {"matchLabels": {"a": "b"}}}],
        "metricsFrom": [{"namespaceSelector": {}}],
    },
    endpoint={
        "port": 80,
        "type": "NodePort",
        "annotations": {"a": "b"},
        "pickerRef": {"name": "epp"},
    },
    template={
        "labels": {"team": "a"},
        "annotations": {"a": "b"},
        "nodeSelector": {"zone": "a"},
        "affinity": {"podAntiAffinity": {}},
        "tolerations": [{"key": "amd.com/gpu", "operator": "Exists"}],
        "resources": {"requests": {"cpu": "4"}},
        "env": [{"name": "A", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}],
        "volumes": [{"name": "extra", "emptyDir": {}}],
        "volumeMounts": [{"name": "extra", "mountPath": "/extra"}],
        "priorityClassName": "high",
        "serviceAccountName": "account",
        "runtimeClassName": "kata",
    },
)


def test_every_field_is_kept_as_it_was_written(api: ApiServer) -> None:
    body = copy.deepcopy(FULL)
    status, stored = api.call("POST", PATH, body)
    assert status == 201, stored
    assert _within(FULL["spec"], stored["spec"]) == []
    assert parse(stored).spec == parse(copy.deepcopy(FULL)).spec


def _within(wanted: Any, found: Any, path: str = "spec") -> list[str]:
    if isinstance(wanted, dict) and isinstance(found, dict):
        return [
            fault
            for key, value in wanted.items()
            for fault in _within(value, found.get(key), f"{path}.{key}")
        ]
    return [] if wanted == found else [f"{path}: {wanted!r} became {found!r}"]


def test_scale_is_a_subresource(api: ApiServer) -> None:
    name = api.call("POST", PATH, server())[1]["metadata"]["name"]
    scale = api.call("GET", f"{PATH}/{name}/scale")[1]
    scale["spec"]["replicas"] = 3
    assert api.call("PUT", f"{PATH}/{name}/scale", scale)[0] == 200
    assert api.call("GET", f"{PATH}/{name}")[1]["spec"]["replicas"] == 3
