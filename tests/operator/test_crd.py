"""The CRD is complete, structural, small, and its committed copies are up to date."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from flatwake_operator import generated
from flatwake_operator.crd import definition, models_by_name, prune, schema
from flatwake_service.manifest.describe import field_texts
from flatwake_service.manifest.part import Fragment, Part
from flatwake_service.manifest.spec import InferenceServer


def nodes(node: dict[str, Any], path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    yield path, node
    for name, inner in node.get("properties", {}).items():
        yield from nodes(inner, f"{path}.{name}")
    for name in ("items", "additionalProperties"):
        if isinstance(node.get(name), dict):
            yield from nodes(node[name], f"{path}[]")


def test_committed_copies_are_up_to_date() -> None:
    assert generated.stale() == []


def test_what_a_newer_crd_has_is_left_out_and_named() -> None:
    newer = {
        "spec": {
            "model": {"source": "file:///m", "flavour": "x"},
            "template": {
                "env": [{"name": "A", "valueFrom": {"anything": 1}}],
                "affinity": {"a": 1},
            },
            "hats": 3,
        }
    }
    known, unknown = prune(newer, schema())
    assert unknown == ["spec.model.flavour", "spec.hats"]
    assert known["spec"]["template"] == newer["spec"]["template"]
    assert known["spec"]["model"] == {"source": "file:///m"}


def test_it_is_far_below_the_size_that_kubectl_apply_can_take() -> None:
    assert len(json.dumps(definition())) < 200_000


def test_every_field_is_described() -> None:
    undescribed = [
        path
        for path, node in nodes(schema())
        if path.startswith((".spec", ".status")) and not path.endswith("[]")
        if not node.get("description")
    ]
    assert undescribed == []


def test_every_field_of_the_models_is_in_it() -> None:
    paths = {path for path, _ in nodes(schema())}
    for field in ("spec.model.cache.claim.accessModes", "spec.access.from", "status.conditions"):
        assert f".{field}" in paths
    for model in models_by_name(InferenceServer).values():
        if model not in (InferenceServer, Fragment) and model.__name__ != "Metadata":
            missing = set(model.model_fields) - set(field_texts(model))
            assert missing == set(), model


def test_every_string_and_list_in_spec_is_bounded_so_that_rules_have_a_cost() -> None:
    unbounded = []
    for path, node in nodes(schema()["properties"]["spec"]):
        bound = {"string": "maxLength", "array": "maxItems"}.get(node.get("type", ""))
        is_map_value = path.endswith("[]") and node == {"type": "string"}
        if bound and bound not in node and "enum" not in node and not is_map_value:
            unbounded.append(path)
    assert unbounded == []


@pytest.mark.parametrize(
    "model",
    [m for m in models_by_name(InferenceServer).values() if issubclass(m, Part) and m.rules],
)
def test_a_rule_without_a_twin_in_python_is_about_the_past(model: type[Part]) -> None:
    for rule in model.rules:
        assert (rule.holds is None) == ("oldSelf" in rule.cel), rule.message
        assert len(rule.message) < 250
