"""Pins: what rolls pods, and what never does."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from flatwake_operator.pins import ROLLS, canonical, pin, rolls
from flatwake_service.manifest import InferenceServer, parse
from flatwake_service.manifest.part import Part
from flatwake_service.manifest.spec import InferenceServerSpec

DATA = Path(__file__).parent / "data"


def server(**spec: Any) -> InferenceServer:
    return parse(
        {
            "apiVersion": "flatwake.dev/v1alpha1",
            "kind": "InferenceServer",
            "metadata": {"name": "chat"},
            "spec": {"model": {"source": "hf://org/repo"}} | spec,
        }
    )


def of(**spec: Any) -> str:
    return pin(server(**spec), {}, None)


def leaves(model: type[Part], prefix: str = "") -> list[str]:
    found = []
    for name, info in model.model_fields.items():
        path = f"{prefix}{info.alias or name}"
        default = info.get_default(call_default_factory=True)
        inner = type(default) if isinstance(default, Part) else None
        found += leaves(inner, f"{path}.") if inner else [path]
    return found


@pytest.mark.parametrize("path", leaves(InferenceServerSpec))
def test_every_field_has_a_mark(path: str) -> None:
    assert rolls(path) in (True, False)


def test_every_mark_is_of_a_field() -> None:
    paths = leaves(InferenceServerSpec)
    assert [mark for mark in ROLLS if not any(f"{p}.".startswith(f"{mark}.") for p in paths)] == []


SAME = [
    {"replicas": 5},
    {"autoscaling": {"maxReplicas": 3}},
    {"rollout": {"strategy": "Surge"}},
    {"endpoint": {"port": 80, "type": "NodePort"}},
    {"access": {"from": [{"podSelector": {}}], "metricsFrom": [{"podSelector": {}}]}},
    {"engine": {"maxSequences": 8}},
    {"limits": {"queueTimeout": "1m", "bodyBytes": "4096Ki"}},
    {"template": {}},
    {"model": {"source": "hf://org/repo", "cache": {"size": "20480Mi"}}},
]


@pytest.mark.parametrize("spec", SAME, ids=str)
def test_what_does_not_roll(spec: dict[str, Any]) -> None:
    assert of(**spec) == of()


OTHER = [
    {"image": "localhost/x:2"},
    {"model": {"source": "hf://org/repo@v2"}},
    {"model": {"source": "hf://org/repo", "cache": {"size": "30Gi"}}},
    {"model": {"source": "hf://org/repo", "cache": {"claim": {}}}},
    {"engine": {"maxSequences": 16}},
    {"engine": {"kvCache": {"dtype": "Float32"}}},
    {"limits": {"queue": 1}},
    {"limits": {"drainTimeout": "600s"}},
    {"startupTimeout": "1m"},
    {"accelerator": {"claim": {}}},
    {"accelerator": {"minMemory": "16Gi"}},
    {"access": {"apiKeysSecret": {"name": "keys"}}},
    {"access": {"corsOrigins": ["*"]}},
    {"template": {"labels": {"a": "b"}}},
    {"template": {"resources": {"requests": {"cpu": "1"}}}},
    {"template": {"env": [{"name": "A", "value": "1"}]}},
    {"imagePullSecrets": [{"name": "pull"}]},
]


@pytest.mark.parametrize("spec", OTHER, ids=str)
def test_what_rolls(spec: dict[str, Any]) -> None:
    assert of(**spec) != of()


def test_all_of_them_differ() -> None:
    assert len({of(**spec) for spec in OTHER}) == len(OTHER)


def test_a_claim_grows_without_a_roll() -> None:
    def claim(size: str) -> dict[str, Any]:
        return {"model": {"source": "hf://org/repo", "cache": {"size": size, "claim": {}}}}

    assert of(**claim("30Gi")) == of(**claim("20Gi"))


def test_the_chat_template_and_the_wish_for_new_defaults_count() -> None:
    plain = pin(server(), {}, None)
    texts = {pin(server(), {"templates/chat": text}, None) for text in ("a", "b", None)}
    assert len(texts | {plain, pin(server(), {}, ""), pin(server(), {}, "1")}) == 6


def test_what_is_hashed_is_small_and_plain() -> None:
    assert canonical(server(limits={"queueTimeout": "5s"}).spec) == {
        "model": {"source": "hf://org/repo"},
        "limits": {"queueTimeout": 5_000_000_000},
    }


def test_pins_of_released_fixtures_never_change() -> None:
    """A pin that changes would roll every server at the next operator upgrade."""
    released = yaml.safe_load((DATA / "pins.yaml").read_text())
    for release, cases in released.items():
        for case in cases:
            found = pin(server(**case["spec"]), case.get("config", {}), case.get("adopt"))
            assert found == case["pin"], (release, case)
