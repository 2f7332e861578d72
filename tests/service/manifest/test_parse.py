"""A manifest file gives its documents, or one error that names file, field and cure."""

from pathlib import Path

import pytest
import yaml
from flatwake_service.manifest import ManifestError, load, loads, parse

EXAMPLES = Path(__file__).parents[3] / "examples"

MINIMAL = """
apiVersion: flatwake.dev/v1alpha1
kind: InferenceServer
metadata: {name: chat}
spec:
  model: {source: "file:///models/m.gguf"}
"""


def with_spec(**spec: object) -> str:
    document = yaml.safe_load(MINIMAL)
    document["spec"] |= spec
    return yaml.safe_dump(document)


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.yaml")), ids=lambda path: path.stem)
def test_every_example_parses(path: Path) -> None:
    assert load(path).server.spec.model.source


def test_absent_fields_have_their_defaults() -> None:
    spec = loads(MINIMAL).server.spec
    assert (spec.replicas, spec.engine.max_sequences, spec.limits.queue) == (1, 8, 64)
    assert spec.model.cache.size == "20Gi"


def test_config_maps_and_secrets_come_along_decoded() -> None:
    documents = loads(
        MINIMAL
        + """
---
apiVersion: v1
kind: ConfigMap
metadata: {name: templates}
data: {chat: "{{ messages }}"}
---
apiVersion: v1
kind: Secret
metadata: {name: keys}
data: {alice: c2VjcmV0}
stringData: {bob: hidden}
"""
    )
    assert documents.config_maps["templates"]["chat"] == b"{{ messages }}"
    assert documents.secrets["keys"] == {"alice": b"secret", "bob": b"hidden"}


FAULTS = [
    pytest.param(
        with_spec(engine={"prefilTokens": 512}),
        "spec.engine.prefilTokens",
        "did you mean prefillTokens?",
        id="a misspelt field names the nearest known one",
    ),
    pytest.param(
        with_spec(accelerator={"claim": {"selectors": [{"cel": {"expresion": "x"}}]}}),
        "spec.accelerator.claim.selectors[0].cel.expresion",
        "did you mean expression?",
        id="a misspelt field inside a list",
    ),
    pytest.param(with_spec(model={"name": "m"}), "spec.model.source", "is missing", id="no source"),
    pytest.param(
        with_spec(model={"source": "s3://bucket/m"}),
        "spec.model.source",
        "write hf://org/repo@revision",
        id="a source of an unknown scheme lists the forms",
    ),
    pytest.param(
        with_spec(model={"source": "http://host/m.gguf"}),
        "spec.model",
        "add model.digest",
        id="plain http without a digest",
    ),
    pytest.param(
        with_spec(engine={"prefillTokens": 100}),
        "spec.engine.prefillTokens",
        "multiple of 64",
        id="a chunk that isn't a multiple of 64",
    ),
    pytest.param(
        with_spec(engine={"graphs": True}),
        "spec.engine.graphs",
        "put the value in quotes ('Auto', 'On' or 'Off')",
        id="an unquoted On is explained",
    ),
    pytest.param(
        with_spec(limits={"queueTimeout": 60}),
        "spec.limits.queueTimeout",
        "with its unit, as a string: 90s",
        id="a duration without a unit",
    ),
    pytest.param(
        with_spec(limits={"queueTimeout": "1 minute"}),
        "spec.limits.queueTimeout",
        "such as 90s",
        id="no duration",
    ),
    pytest.param(
        with_spec(model={"source": "file:///m", "cache": {"size": "20 GB"}}),
        "spec.model.cache.size",
        "such as 20Gi",
        id="no quantity",
    ),
    pytest.param(
        with_spec(accelerator={"backend": "Cuda"}),
        "spec.accelerator.backend",
        "'Auto', 'Hip' or 'Cpu' (given: 'Cuda')",
        id="a choice that doesn't exist",
    ),
    pytest.param(
        with_spec(autoscaling={"minReplicas": 3, "maxReplicas": 2}),
        "spec.autoscaling",
        "minReplicas is more than maxReplicas",
        id="an empty range of replicas",
    ),
    pytest.param(
        with_spec(model={"source": "hf://a/b", "cache": {"claim": {}}}, replicas=2),
        "spec",
        "ReadWriteMany",
        id="replicas that can't share a claim",
    ),
    pytest.param(
        with_spec(template={"env": [{"name": "HIP_VISIBLE_DEVICES", "value": "0"}]}),
        "spec.template",
        "remove them from env",
        id="variables that hide the device",
    ),
    pytest.param(
        MINIMAL.replace("name: chat", "name: Chat"), "", "begin with a letter", id="a bad name"
    ),
    pytest.param(
        MINIMAL.replace("v1alpha1", "v1"), "apiVersion", "flatwake.dev/v1alpha1", id="a version"
    ),
    pytest.param(MINIMAL + "  replicas: 1\n  replicas: 2\n", "", "written twice", id="a key twice"),
    pytest.param("kind: ConfigMap\nmetadata: {name: x}\n", "", "add a document", id="no server"),
    pytest.param(MINIMAL + "---" + MINIMAL, "", "2 InferenceServers", id="two servers"),
    pytest.param("- a\n", "", "isn't a mapping", id="a list"),
    pytest.param("a: [", "", "line 1", id="broken YAML names the line"),
]


@pytest.mark.parametrize(("text", "field", "cure"), FAULTS)
def test_a_fault_names_file_field_and_cure(
    text: str, field: str, cure: str, tmp_path: Path
) -> None:
    path = tmp_path / "server.yaml"
    path.write_text(text)
    with pytest.raises(ManifestError) as caught:
        load(path)
    assert caught.value.field == field
    assert cure in str(caught.value)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_missing_file_says_so(tmp_path: Path) -> None:
    with pytest.raises(ManifestError, match="No such file"):
        load(tmp_path / "absent.yaml")


def test_an_object_of_the_api_server_parses() -> None:
    data = yaml.safe_load(MINIMAL)
    data["metadata"] |= {"uid": "u", "generation": 3, "managedFields": [{"manager": "kubectl"}]}
    data["status"] = {"conditions": []}
    server = parse(data)
    assert (server.metadata.uid, server.metadata.generation) == ("u", 3)
