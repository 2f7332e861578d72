"""One InferenceServer's life on a real API server whose controllers are played by the test."""

import asyncio
import itertools
from collections import Counter
from collections.abc import Coroutine
from typing import Any

import kopf
from apiserver import ApiServer
from flatwake_operator import kinds
from flatwake_operator.api import Api
from flatwake_operator.events import Events
from flatwake_operator.observe import Abilities, Observer, abilities
from flatwake_operator.reconcile import Reconciler
from flatwake_operator.settings import Object, Settings
from flatwake_operator.store import Store
from flatwake_service.manifest import Backend

_names = (f"lab{number}" for number in itertools.count())
SETTINGS = Settings(
    images={Backend.HIP: "localhost/flatwake-hip:1", Backend.CPU: "localhost/flatwake-cpu:1"}
)
READS = {"get", "list"}


class Lab:
    """A namespace of its own, an operator's inside, and hands that play the other controllers."""

    def __init__(
        self,
        server: ApiServer,
        *,
        settings: Settings = SETTINGS,
        version: str = "1",
        token: str | None = None,
    ):
        self.server = server
        self.token = token or server.token
        self.settings = settings
        self.version = version
        self.namespace = next(_names)
        self.killed_after: int | None = None
        status, answer = server.call(
            "POST", "/api/v1/namespaces", {"metadata": {"name": self.namespace}}
        )
        assert status == 201, answer
        self.writes: list[str] = []
        self.loop = asyncio.new_event_loop()
        self.abilities: Abilities | None = None
        self.status_port = 9
        self.earlier: Counter[tuple[str, str]] = Counter()
        self.start()

    def all_calls(self) -> Counter[tuple[str, str]]:
        """Calls of all processes so far, by verb and resource."""
        return self.earlier + Counter(self.api.calls.counts)

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        return self.loop.run_until_complete(work)

    def start(self) -> None:
        """A new process: nothing is known but what the cluster holds."""
        self.api = Api(
            kopf.ConnectionInfo(server=self.server.url, token=self.token, insecure=True),
            guard=self._count,
        )
        self.store = Store()
        if self.abilities is None:
            self.abilities = self.run(abilities(self.api, []))
        self.observer = Observer(self.api, self.store, self.abilities, self.status_port)
        events = Events(self.api, "test")
        self.reconciler = Reconciler(
            self.api, self.store, self.observer, self.settings, events, self.version
        )

    def stop(self) -> None:
        self.earlier.update(self.api.calls.counts)
        self.run(self.api.close())
        self.run(self.observer.close())

    def close(self) -> None:
        self.stop()
        self.loop.close()

    def _count(self) -> None:
        if self.killed_after is not None and len(self.writes) >= self.killed_after:
            raise Killed
        self.writes.append("write")

    def sync(self) -> None:
        """What the watches would have brought."""

        async def lists() -> None:
            for kind in (*kinds.CHILDREN, kinds.SERVER, kinds.POD):
                assert self.abilities is not None
                if kind in kinds.CHILDREN and kind not in self.abilities.apis:
                    continue
                found = await self.api.list(kind, self.namespace)
                self.store.replace(kind, found.items, int(found.version))
            found = await self.api.list(kinds.NODE)
            self.store.replace(kinds.NODE, found.items, int(found.version))

        self.run(lists())

    def pass_(self, name: str = "chat") -> float | None:
        """One reconcile, seeing all that is there."""
        self.sync()
        self.writes.clear()
        after: float | None = self.run(self.reconciler.reconcile((self.namespace, name)))
        self.sync()
        return after

    def settle(self, name: str = "chat", passes: int = 10) -> None:
        """Passes until one writes nothing."""
        for _ in range(passes):
            self.pass_(name)
            if not self.writes:
                return
        raise AssertionError(f"still writing after {passes} passes")

    # The user's hands.

    def create(self, name: str = "chat", **spec: Any) -> Object:
        body = {
            "apiVersion": "flatwake.dev/v1alpha1",
            "kind": "InferenceServer",
            "metadata": {"name": name},
            "spec": {
                "model": {"source": "file:///models/m.gguf"},
                "accelerator": {"backend": "Cpu"},
            }
            | spec,
        }
        return self.ok("POST", kinds.SERVER.path(self.namespace), body)

    def edit(self, name: str = "chat", **spec: Any) -> Object:
        return self.patch(kinds.SERVER, name, {"spec": spec})

    def patch(self, kind: kinds.Kind, name: str, body: Object, part: str | None = None) -> Object:
        path = kind.path(self.namespace, name, part)
        return self.ok("PATCH", path, body, "application/merge-patch+json")

    def ok(
        self, method: str, path: str, body: Any = None, content: str = "application/json"
    ) -> Any:
        status, answer = self.server.call(method, path, body, content)
        assert status < 300, answer
        return answer

    def get(self, kind: kinds.Kind, name: str = "chat") -> Object | None:
        status, answer = self.server.call("GET", kind.path(self.namespace, name))
        return answer if status == 200 else None

    def want(self, kind: kinds.Kind, name: str = "chat") -> Object:
        found = self.get(kind, name)
        assert found is not None, f"no {kind.name} {name}"
        return found

    def list(self, kind: kinds.Kind) -> list[Object]:
        return list(self.ok("GET", kind.path(self.namespace))["items"])

    def conditions(self, name: str = "chat") -> dict[str, Object]:
        status = self.want(kinds.SERVER, name).get("status") or {}
        return {condition["type"]: condition for condition in status.get("conditions", [])}

    def condition(self, kind: str, name: str = "chat") -> tuple[str, str]:
        found = self.conditions(name)[kind]
        return found["status"], found["reason"]

    # The other controllers' hands.

    def deployment_status(self, name: str = "chat", **counts: int) -> None:
        live = self.want(kinds.DEPLOYMENT, name)
        status = {"observedGeneration": live["metadata"]["generation"], **counts}
        self.patch(kinds.DEPLOYMENT, name, {"status": status}, "status")

    def all_available(self, name: str = "chat") -> None:
        wanted = self.want(kinds.DEPLOYMENT, name)["spec"]["replicas"]
        counts = ("replicas", "readyReplicas", "updatedReplicas", "availableReplicas")
        self.deployment_status(name, **dict.fromkeys(counts, wanted))

    def pod(self, pod: str, name: str = "chat", status: Object | None = None) -> Object:
        """A pod of the Deployment's present template, in some state."""
        template = self.want(kinds.DEPLOYMENT, name)["spec"]["template"]
        body = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {**template["metadata"], "name": pod},
            "spec": template["spec"],
        }
        self.ok("POST", kinds.POD.path(self.namespace), body)
        return self.pod_status(pod, status or {})

    def pod_status(self, pod: str, status: Object) -> Object:
        return self.patch(kinds.POD, pod, {"status": status}, "status")

    def pod_ready(self, pod: str, ip: str = "") -> Object:
        ready = {"type": "Ready", "status": "True"}
        address = {"podIP": ip, "podIPs": [{"ip": ip}]} if ip else {}
        return self.pod_status(pod, {"phase": "Running", "conditions": [ready], **address})


class Killed(BaseException):
    """The process died at this write."""


def stuck_pod(lab: Lab, name: str = "stuck") -> None:
    """A pod whose containers don't come, and the kubelet's event that says why."""
    lab.create(name)
    lab.settle(name)
    made = lab.pod(f"{name}-pod", name)
    scheduled = {
        "type": "PodScheduled",
        "status": "True",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }
    waiting = {"name": "fetch", "state": {"waiting": {"reason": "PodInitializing"}}}
    container = {"restartCount": 0, "ready": False, "image": "x", "imageID": "", **waiting}
    lab.pod_status(
        f"{name}-pod",
        {"phase": "Pending", "conditions": [scheduled], "initContainerStatuses": [container]},
    )
    event = {
        "metadata": {"name": f"{name}-mount"},
        "involvedObject": {
            "kind": "Pod",
            "name": f"{name}-pod",
            "namespace": lab.namespace,
            "uid": made["metadata"]["uid"],
        },
        "type": "Warning",
        "reason": "FailedMount",
        "message": 'MountVolume.SetUp failed: configmap "extra" not found',
        "lastTimestamp": "2026-01-01T00:00:20Z",
    }
    lab.ok("POST", kinds.EVENT.path(lab.namespace), event)
    lab.settle(name)
