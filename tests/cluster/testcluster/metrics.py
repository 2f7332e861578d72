"""A metrics API of the test's own, registered with the API server as metrics adapters are.

metrics.k8s.io/v1beta1          a pod's CPU: what the test says that each pod uses
custom.metrics.k8s.io/v1beta1   flatwake_requests_in_flight: read from the pods' own /metrics
"""

from __future__ import annotations

import json
import re
import ssl
import threading
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler

from testcluster import layout
from testcluster.kube import Kube, Object
from testcluster.network import NodeServer, enter

NAMESPACE, NAME = "kube-system", "test-metrics"
GROUPS = {"metrics.k8s.io": "pods", "custom.metrics.k8s.io": "pods/flatwake_requests_in_flight"}
VERSION = "v1beta1"
IN_FLIGHT = "flatwake_requests_in_flight"
SERVE_PORT = 8000


@dataclass
class Metrics:
    """A running metrics API. cpu_milli: what each container of each pod is said to use."""

    kube: Kube
    cpu_milli: int = 1
    asked: list[str] = field(default_factory=list)

    def answer(self, path: str, query: dict[str, list[str]]) -> Object | None:
        """A discovery document or a list of values; None for a path that isn't served."""
        self.asked.append(path)
        for group, resource in GROUPS.items():
            root = f"/apis/{group}/{VERSION}"
            if path == root:
                return _resources(group, resource)
            if found := re.fullmatch(rf"{root}/namespaces/([^/]+)/pods(/\*/{IN_FLIGHT})?", path):
                pods = self._running(found[1], query.get("labelSelector", [""])[0])
                return _custom(pods) if found[2] else self._cpu(pods)
        return None

    def _running(self, namespace: str, selector: str) -> list[Object]:
        pods = self.kube.list("pods", namespace, selector)
        return [pod for pod in pods if pod["status"].get("phase") == "Running"]

    def _cpu(self, pods: list[Object]) -> Object:
        usage = {"cpu": f"{self.cpu_milli}m", "memory": "1Mi"}
        items = [
            {
                "metadata": _name(pod),
                "timestamp": _now(),
                "window": "1s",
                "containers": [
                    {"name": container["name"], "usage": usage}
                    for container in pod["spec"]["containers"]
                ],
            }
            for pod in pods
        ]
        return {"kind": "PodMetricsList", "apiVersion": f"metrics.k8s.io/{VERSION}", "items": items}


def _custom(pods: list[Object]) -> Object:
    items = [
        {
            "describedObject": {"kind": "Pod", "apiVersion": "/v1", **_name(pod)},
            "metricName": IN_FLIGHT,
            "timestamp": _now(),
            "value": str(value),
        }
        for pod in pods
        if (value := _in_flight(pod)) is not None
    ]
    version = f"custom.metrics.k8s.io/{VERSION}"
    return {"kind": "MetricValueList", "apiVersion": version, "metadata": {}, "items": items}


def _in_flight(pod: Object) -> int | None:
    url = f"http://{layout.in_url(pod['status'].get('podIP', ''))}:{SERVE_PORT}/metrics"
    try:
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        text = opener.open(url, timeout=3).read().decode()
    except OSError:
        return None  # it isn't listening yet
    found = re.search(rf"^{IN_FLIGHT} (\S+)$", text, re.M)
    return int(float(found[1])) if found else None


def _resources(group: str, resource: str) -> Object:
    kind = "PodMetrics" if group == "metrics.k8s.io" else "MetricValueList"
    one = {"name": resource, "singularName": "", "namespaced": True, "kind": kind, "verbs": ["get"]}
    return {
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": f"{group}/{VERSION}",
        "resources": [one],
    }


def _name(pod: Object) -> Object:
    return {key: pod["metadata"][key] for key in ("name", "namespace")}


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


@contextmanager
def served(kube: Kube) -> Iterator[Metrics]:
    """The API for the length of a block."""
    metrics = Metrics(kube)

    class Handler(_Handler):
        source = metrics

    started = threading.Event()
    servers: list[NodeServer] = []

    def serve() -> None:
        # The threads that answer inherit the cluster's network, in which the pods are reached.
        enter(kube.cluster)
        server = NodeServer(Handler)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        pki = kube.cluster.pki
        context.load_cert_chain(pki / "apiserver.crt", pki / "apiserver.key")
        server.socket = context.wrap_socket(server.socket, server_side=True)
        servers.append(server)
        started.set()
        server.serve_forever()

    thread = threading.Thread(target=serve, name="metrics")
    thread.start()
    assert started.wait(20), "the metrics API listens"
    objects = _registration(int(servers[0].server_address[1]))
    try:
        kube.apply(*objects)
        for group in GROUPS:
            kube.until(
                f"{group} is available",
                lambda group=group: _available(kube, group),  # type: ignore[misc]
            )
        yield metrics
    finally:
        for thing in objects[::-1]:
            place = ["-n", NAMESPACE] if "namespace" in thing["metadata"] else []
            kube.kubectl(*place, "delete", thing["kind"], thing["metadata"]["name"])
        servers[0].shutdown()
        servers[0].server_close()
        thread.join()


def _available(kube: Kube, group: str) -> bool | None:
    found = kube.get("apiservice", f"{VERSION}.{group}") or {}
    conditions = found.get("status", {}).get("conditions", [])
    return any(c["type"] == "Available" and c["status"] == "True" for c in conditions) or None


def _registration(port: int) -> list[Object]:
    """A Service without a selector that leads here, and an APIService for each group."""
    place = {"name": NAME, "namespace": NAMESPACE}
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": place,
        "spec": {"ports": [{"name": "https", "port": 443, "targetPort": port}]},
    }
    endpoints = {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {**place, "labels": {"kubernetes.io/service-name": NAME}},
        "addressType": layout.FAMILY,
        "endpoints": [{"addresses": [layout.NODE_IP], "conditions": {"ready": True}}],
        "ports": [{"name": "https", "port": port, "protocol": "TCP"}],
    }
    apis = [
        {
            "apiVersion": "apiregistration.k8s.io/v1",
            "kind": "APIService",
            "metadata": {"name": f"{VERSION}.{group}"},
            "spec": {
                "group": group,
                "version": VERSION,
                "groupPriorityMinimum": 100,
                "versionPriority": 100,
                "insecureSkipTLSVerify": True,
                "service": {**place, "port": 443},
            },
        }
        for group in GROUPS
    ]
    return [service, endpoints, *apis]


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    source: Metrics

    def do_GET(self) -> None:
        path, _, query = self.path.partition("?")
        found = self.source.answer(urllib.parse.unquote(path), urllib.parse.parse_qs(query))
        body = json.dumps(found or {"kind": "Status", "code": 404}).encode()
        self.send_response(200 if found else 404)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """What was asked is kept in the API's `asked`."""
