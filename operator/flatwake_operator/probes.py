"""The operator's own port: liveness, readiness and metrics.

An API server that can't be reached fails readiness and shows in the metrics, never liveness: a
restart wouldn't mend it. Liveness fails when watches are dead while lists show news.
"""

import time
from collections.abc import Iterator

from aiohttp import web
from flatwake_service.manifest import Reason
from prometheus_client import CollectorRegistry, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.process_collector import ProcessCollector

from flatwake_operator import kinds
from flatwake_operator.api import Api
from flatwake_operator.keys import KeyQueue
from flatwake_operator.lease import Lease
from flatwake_operator.store import Key, Store
from flatwake_operator.watches import Watches

BLIND_SECONDS = 180.0
SILENT_SECONDS = 90.0


class Probes:
    """Answers /healthz, /readyz and /metrics from what the parts say of themselves."""

    def __init__(
        self, api: Api, store: Store, queue: KeyQueue[Key], watches: Watches, lease: Lease | None
    ) -> None:
        self.api = api
        self.store = store
        self.queue = queue
        self.watches = watches
        self.lease = lease
        self.registry = CollectorRegistry()
        self.registry.register(self)
        ProcessCollector(registry=self.registry)
        self.passes = Histogram(
            "flatwake_operator_reconcile_seconds",
            "Time of one pass over one InferenceServer.",
            registry=self.registry,
        )

    def liveness(self) -> str | None:
        """What is wrong, if a restart would mend it."""
        blind = self.watches.blind_seconds()
        if blind > BLIND_SECONDS:
            return f"the watches have missed a change for {blind:.0f} s"
        return None

    def readiness(self) -> str | None:
        """What is wrong, if anything."""
        silent = time.monotonic() - self.api.calls.last_answer
        if self.leading and silent > SILENT_SECONDS:
            return f"the API server hasn't answered for {silent:.0f} s"
        return None

    @property
    def leading(self) -> bool:
        return self.lease is None or self.lease.leading

    def collect(self) -> Iterator[Metric]:
        """The metrics that are read when they are asked for."""
        calls = CounterMetricFamily(
            "flatwake_operator_api_calls",
            "Calls to the API server.",
            labels=("verb", "resource"),
        )
        for (verb, resource), count in sorted(self.api.calls.counts.items()):
            calls.add_metric((verb, resource), count)
        yield calls
        ready = sum(_is_ready(server) for server in self.store.all(kinds.SERVER))
        for name, text, value in (
            ("leader", "1 while this process leads.", float(self.leading)),
            ("queue_depth", "Servers that are due or being worked on.", self.queue.depth),
            ("failing", "Servers whose last pass failed.", self.queue.failing),
            ("servers", "InferenceServers.", len(self.store.all(kinds.SERVER))),
            ("servers_ready", "InferenceServers that are Ready, or want no pod.", ready),
            (
                "api_silence_seconds",
                "Since the API server last answered.",
                time.monotonic() - self.api.calls.last_answer,
            ),
            (
                "watch_blind_seconds",
                "For how long a change has been there that no watch has shown.",
                self.watches.blind_seconds(),
            ),
        ):
            yield GaugeMetricFamily(f"flatwake_operator_{name}", text, value=value)

    async def serve(self, port: int) -> web.AppRunner:
        """Listens; the caller cleans the runner up."""
        app = web.Application()
        app.router.add_get("/healthz", self._health)
        app.router.add_get("/readyz", self._ready)
        app.router.add_get("/metrics", self._metrics)
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        await web.TCPSite(runner, port=port).start()
        return runner

    async def _health(self, _: web.Request) -> web.Response:
        return _answer(self.liveness())

    async def _ready(self, _: web.Request) -> web.Response:
        return _answer(self.liveness() or self.readiness())

    async def _metrics(self, _: web.Request) -> web.Response:
        return web.Response(
            body=generate_latest(self.registry),
            headers={"Content-Type": "text/plain; version=0.0.4; charset=utf-8"},
        )


def _answer(fault: str | None) -> web.Response:
    return web.Response(text=f"{fault or 'ok'}\n", status=503 if fault else 200)


def _is_ready(server: dict[str, object]) -> bool:
    status = server.get("status")
    found = status.get("conditions", []) if isinstance(status, dict) else []
    ready = next((c for c in found if c["type"] == "Ready"), {"status": "", "reason": ""})
    return ready["status"] == "True" or ready["reason"] == Reason.SCALED_TO_ZERO
