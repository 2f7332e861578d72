"""InferenceServers in a cluster: from the examples to an answered request."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import yaml

from testcluster import hub as model_hub
from testcluster import layout
from testcluster.hub import Hub
from testcluster.kube import Kube, KubectlError, Object

EXAMPLES = layout.REPOSITORY / "examples"
QUESTION = [{"role": "user", "content": "Name a primary colour."}]


def example(name: str, hub: Hub, **spec: Any) -> Object:
    """A committed example that fetches its model from the hub; `spec` adds top-level fields."""
    document: Object = yaml.safe_load((EXAMPLES / name).read_text())
    made = copy.deepcopy(document)
    made["spec"]["model"]["source"] = hub.url(model_hub.FILE)
    made["spec"]["model"]["digest"] = f"sha256:{model_hub.DIGEST}"
    made["spec"].update(spec)
    return made


@dataclass(frozen=True)
class Server:
    """One InferenceServer, looked at as its user does."""

    kube: Kube
    namespace: str
    name: str

    def read(self) -> Object:
        found = self.kube.get("infs", self.name, self.namespace)
        if found is None:
            raise KubectlError(f"no InferenceServer {self.name}")
        return found

    def condition(self, kind: str) -> Object | None:
        """A condition that speaks of the newest spec, or None."""
        found = self.read()
        for condition in found.get("status", {}).get("conditions", []):
            current = condition.get("observedGeneration") == found["metadata"]["generation"]
            if condition["type"] == kind and current:
                return dict(condition)
        return None

    def wait_for(
        self, kind: str, status: str = "True", reason: str | None = None, timeout_s: float = 120
    ) -> Object:
        """The condition, once it has this status (and reason)."""

        def holds() -> Object | None:
            found = self.condition(kind)
            matches = found and found["status"] == status and reason in (None, found["reason"])
            return found if matches else None

        return self.kube.until(
            f"{self.name} has {kind}={status}{f' ({reason})' if reason else ''}",
            holds,
            namespaces=[self.namespace, "flatwake-system"],
            timeout_s=timeout_s,
        )

    def pods(self) -> list[Object]:
        """Its pods that aren't being deleted."""
        found = self.kube.list("pods", self.namespace, f"flatwake.dev/server={self.name}")
        return [pod for pod in found if "deletionTimestamp" not in pod["metadata"]]

    def only_pod(self) -> Object:
        """Its one pod; where there are more or none, what a person would look at."""
        found = self.pods()
        if len(found) != 1:
            template = "{range .items[*]}{.metadata.name} {.spec.template}{'\\n'}{end}"
            words = ["get", "replicasets", f"--selector=flatwake.dev/server={self.name}"]
            sets = self.kube.kubectl("-n", self.namespace, *words, f"-o=jsonpath={template}")
            looks = [self.kube.explain(place) for place in (self.namespace, "flatwake-system")]
            raise AssertionError(
                "\n".join([f"{self.name} has {len(found)} pods, of:", sets, *looks])
            )
        return found[0]

    def ready_pods(self) -> set[str]:
        """The uids of the pods that answer requests."""
        return {
            pod["metadata"]["uid"]
            for pod in self.pods()
            for condition in pod["status"].get("conditions", [])
            if condition["type"] == "Ready" and condition["status"] == "True"
        }

    def wait_for_pods(self, what: str, wanted: Callable[[set[str]], bool]) -> set[str]:
        """The uids of the ready pods, once they are as wanted and there are no others."""

        def holds() -> set[str] | None:
            ready = self.ready_pods()
            settled = len(self.pods()) == len(ready)
            return ready if settled and wanted(ready) else None

        return self.kube.until(
            f"{self.name}: {what}", holds,
            namespaces=[self.namespace, "flatwake-system"], timeout_s=240,
        )  # fmt: skip

    def patch(self, spec: Object) -> None:
        """Merge into the spec, as `kubectl patch` does."""
        text = json.dumps({"spec": spec})
        words = ["patch", "infs", self.name, "--type=merge", "-p", text]
        self.kube.kubectl("-n", self.namespace, *words)

    def template_generation(self) -> str:
        """Changes whenever the Deployment's pods would be rolled."""
        found = self.kube.get("deployment", self.name, self.namespace)
        assert found is not None, "the server has a Deployment"
        return json.dumps(found["spec"]["template"], sort_keys=True)

    def row(self) -> dict[str, str]:
        """What `kubectl get infs` shows, by column."""
        text = self.kube.kubectl("-n", self.namespace, "get", "infs", self.name)
        header, line = text.splitlines()
        starts = [*map(header.index, header.split()), len(text)]
        return {
            column: line[start:end].strip()
            for column, start, end in zip(header.split(), starts, starts[1:], strict=False)
        }

    def inside_url(self) -> str:
        """The Service's address, for clients on the node, which has no cluster DNS."""
        found = self.kube.get("service", self.name, self.namespace)
        assert found is not None, "the server has a Service"
        return f"http://{layout.in_url(found['spec']['clusterIP'])}:8000/v1"

    def chat(self, *, timeout_s: int = 120, **fields: Any) -> Object:
        """One chat completion, asked for by the pod `client` at the Service's DNS name."""
        body = json.dumps({"messages": QUESTION, "max_tokens": 8, "temperature": 0} | fields)
        url = f"http://{self.name}.{self.namespace}.svc.cluster.local:8000/v1/chat/completions"
        header = "Content-Type: application/json"
        words = ["timeout", str(timeout_s), "wget", "-qO-", "--header", header]
        words += ["--post-data", body, url]
        answer = self.kube.exec(self.namespace, "client", *words, timeout_s=timeout_s + 20)
        return dict(json.loads(answer))


def serving(kube: Kube, hub: Hub, namespace: str, max_sequences: int) -> Server:
    """One replica of SmolLM2 on the CPU, once it is ready."""
    engine = {"contextLength": 512, "maxSequences": max_sequences}
    manifest = example("smollm2.yaml", hub, engine=engine, accelerator={"backend": "Cpu"})
    kube.apply(manifest, namespace=namespace)
    made = Server(kube, namespace, "smollm2")
    made.wait_for("Ready", timeout_s=240)
    return made
