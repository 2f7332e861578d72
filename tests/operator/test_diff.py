"""What counts as a difference, and what is the API server's or somebody else's."""

from typing import Any

import pytest
from flatwake_operator import labels
from flatwake_operator.diff import differences, stamped

SAME: list[Any] = [
    pytest.param({"a": 1}, {"a": 1, "b": 2}, id="more is there"),
    pytest.param({"a": {}}, {}, id="nothing wanted of something absent"),
    pytest.param({"l": []}, {}, id="an empty list of something absent"),
    pytest.param(
        {"env": [{"name": "A", "value": "1"}]},
        {"env": [{"name": "B"}, {"name": "A", "value": "1"}]},
        id="items of others",
    ),
    pytest.param(
        {"requests": {"memory": "1024Mi", "amd.com/gpu": 1}},
        {"requests": {"memory": "1Gi", "amd.com/gpu": "1"}},
        id="quantities by value",
    ),
]
OTHER: list[Any] = [
    pytest.param({"a": 1}, {"a": 2}, ["a"], id="a value"),
    pytest.param({"a": {"b": 1}}, {"a": {}}, ["a.b"], id="a value that is gone"),
    pytest.param({"args": ["x"]}, {"args": ["x", "y"]}, ["args"], id="a longer list"),
    pytest.param({"args": ["x"]}, {"args": ["y"]}, ["args[0]"], id="an item"),
    pytest.param(
        {"env": [{"name": "A", "value": "1"}]}, {"env": [{"name": "B"}]}, ["env[0]"], id="no item"
    ),
    pytest.param({"value": "1000m"}, {"value": "1"}, ["value"], id="no quantity, so by its text"),
]


@pytest.mark.parametrize(("wanted", "found"), SAME)
def test_no_difference(wanted: dict[str, Any], found: dict[str, Any]) -> None:
    assert differences(wanted, found) == []


@pytest.mark.parametrize(("wanted", "found", "paths"), OTHER)
def test_a_difference(wanted: dict[str, Any], found: dict[str, Any], paths: list[str]) -> None:
    assert [path.lstrip(".") for path in differences(wanted, found)] == paths


def test_the_stamp_changes_when_a_field_is_no_longer_wanted() -> None:
    more = stamped({"metadata": {"name": "a"}, "spec": {"x": 1, "y": 2}})
    less = stamped({"metadata": {"name": "a"}, "spec": {"x": 1}})
    assert (
        more["metadata"]["annotations"][labels.APPLIED]
        != less["metadata"]["annotations"][labels.APPLIED]
    )
