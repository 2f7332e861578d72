"""Every manifest that the docs and the examples show is one that an API server takes."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from apiserver import ApiServer
from flatwake_operator.settings import Object

ROOT = Path(__file__).parents[2]
PATHS = {"InferenceServer": "inferenceservers", "Ingress": "ingresses", "Secret": "secrets"}
NOT_SERVED = {"Gateway", "HTTPRoute"}
"""Kinds of an API that a bare Kubernetes lacks."""


def blocks() -> Iterator[tuple[str, str]]:
    """Where it stands, and its text."""
    for path in sorted((ROOT / "examples").glob("*.yaml")):
        yield path.name, path.read_text()
    for path in sorted((ROOT / "docs").glob("*.md")):
        for text in re.findall(r"```ya?ml\n(.*?)```", path.read_text(), re.DOTALL):
            yield path.name, text


def manifests() -> list[tuple[str, Object]]:
    return [(name, thing) for name, text in blocks() for thing in yaml.safe_load_all(text) if thing]


@pytest.mark.parametrize(
    "thing",
    [
        pytest.param(thing, id=f"{name}-{thing['metadata']['name']}")
        for name, thing in manifests()
        if thing["kind"] not in NOT_SERVED
    ],
)
def test_a_manifest_that_is_shown_is_accepted(api: ApiServer, thing: Object) -> None:
    version = thing["apiVersion"]
    root = f"/apis/{version}" if "/" in version else f"/api/{version}"
    path = f"{root}/namespaces/default/{PATHS[thing['kind']]}"
    status, answer = api.call("POST", f"{path}?dryRun=All&fieldValidation=Strict", thing)
    assert status == 201, answer["message"]
