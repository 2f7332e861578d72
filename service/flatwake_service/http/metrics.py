"""`GET /metrics`: what is counted anyway, put into Prometheus' words when it is asked for."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterable, Iterator, Sequence

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
    Metric,
)
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
from prometheus_client.registry import Collector, CollectorRegistry

from flatwake_service.engine.messages import (
    ROWS_BOUNDS,
    SECONDS_BOUNDS,
    Started,
    Stats,
    StepHistogram,
)
from flatwake_service.http.process import Usage
from flatwake_service.http.service import Service
from flatwake_service.manifest import Phase

CONTENT_TYPE = CONTENT_TYPE_PLAIN_0_0_4
_PREFIX = "flatwake_"


async def exposition(service: Service) -> bytes:
    """The whole page. /proc is read in a thread; everything else is plain numbers."""
    engine = service.engine
    pid = engine.pid if engine is not None and not engine.ended.is_set() else None
    usage = await asyncio.to_thread(service.processes.usage, pid)
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Page(service, usage))
    return generate_latest(registry)


class _Page(Collector):
    def __init__(self, service: Service, usage: dict[str, Usage]) -> None:
        self._service = service
        self._usage = usage

    def collect(self) -> Iterable[Metric]:
        engine = self._service.engine
        stats = engine.stats if engine is not None else Stats()
        started = engine.started if engine is not None else None
        yield from _requests(self._service)
        yield from _latencies(self._service)
        yield from _engine_counters(stats)
        yield from _steps(stats, started)
        yield from _pools(stats)
        yield from _memory(self._usage, stats)
        yield from _server(self._service)
        yield from _aliases(self._service, stats)


def _gauge(name: str, text: str, value: float) -> GaugeMetricFamily:
    return GaugeMetricFamily(_PREFIX + name, text, value=value)


def _counter(name: str, text: str, value: float) -> CounterMetricFamily:
    return CounterMetricFamily(_PREFIX + name, text, value=value)


def _requests(service: Service) -> Iterator[Metric]:
    finished = CounterMetricFamily(
        _PREFIX + "requests", "Requests that ended, by outcome.", labels=["outcome"]
    )
    for outcome, count in service.counters.requests.items():
        finished.add_metric([outcome], count)
    yield finished
    admission = service.admission
    yield _gauge("requests_running", "Requests that run.", admission.running)
    yield _gauge("requests_waiting", "Requests that wait for their turn.", admission.waiting)
    yield _gauge("requests_in_flight", "Requests that run or wait.", admission.in_flight)


def _latencies(service: Service) -> Iterator[Metric]:
    counters = service.counters
    for name, text, histogram in (
        (
            "time_to_first_token_seconds",
            "From a request's arrival until its first token left.",
            counters.first_token,
        ),
        ("inter_token_seconds", "Between tokens of a sequence as they left.", counters.inter_token),
        ("queue_seconds", "From arrival to the first step.", counters.queue),
        ("request_seconds", "From arrival to the end.", counters.request),
    ):
        family = HistogramMetricFamily(_PREFIX + name, text, labels=[])
        _add(family, [], histogram.bounds, histogram.counts, histogram.sum)
        yield family


def _engine_counters(stats: Stats) -> Iterator[Metric]:
    for name, text, value in (
        ("prompt_tokens", "Prompt tokens that were prefilled.", stats.prompt_tokens),
        ("generated_tokens", "Tokens sampled: reported and discarded.", stats.generated_tokens),
        ("reported_tokens", "Tokens given to a request.", stats.reported_tokens),
        ("discarded_tokens", "Tokens of sequences that had ended.", stats.discarded_tokens),
        ("preemptions", "Sequences that gave up their blocks.", stats.preemptions),
        ("graph_replays", "Device graphs run.", stats.graph_replays),
        ("graph_captures", "Device graphs captured.", stats.graph_captures),
    ):
        yield _counter(name, text, value)


def _steps(stats: Stats, started: Started | None) -> Iterator[Metric]:
    seconds = HistogramMetricFamily(
        _PREFIX + "step_seconds", "Duration of the engine's steps.", labels=["phase"]
    )
    rows = HistogramMetricFamily(_PREFIX + "step_rows", "Rows of a step.", labels=["phase"])
    none_yet = StepHistogram((), 0.0)
    for phase, times, counts in (
        ("decode", stats.decode_seconds, stats.decode_rows),
        ("prefill", stats.prefill_seconds, stats.prefill_rows),
    ):
        times, counts = times or none_yet, counts or none_yet
        _add(seconds, [phase], SECONDS_BOUNDS, times.counts, times.sum)
        _add(rows, [phase], ROWS_BOUNDS, counts.counts, counts.sum)
    yield seconds
    yield rows
    yield _counter("step_bytes", "Weights, KV and state that steps had to move.", stats.step_bytes)
    bandwidth = started.bandwidth_bytes if started is not None else 0.0
    yield _gauge("device_bandwidth_bytes", "Read rate a second, measured at start.", bandwidth)


def _pools(stats: Stats) -> Iterator[Metric]:
    for name, text, values in (
        ("kv_blocks", "KV blocks.", (stats.blocks_used, stats.blocks_free, stats.blocks_cached)),
        ("state_slots", "State slots.", (stats.slots_used, stats.slots_free, stats.slots_cached)),
    ):
        family = GaugeMetricFamily(_PREFIX + name, text, labels=["state"])
        for state, value in zip(("used", "free", "cached"), values, strict=True):
            family.add_metric([state], value)
        yield family


def _memory(usage: dict[str, Usage], stats: Stats) -> Iterator[Metric]:
    memory = GaugeMetricFamily(
        _PREFIX + "memory_bytes", "Memory of a process.", labels=["process", "kind"]
    )
    files = GaugeMetricFamily(_PREFIX + "open_files", "Open files.", labels=["process"])
    threads = GaugeMetricFamily(_PREFIX + "threads", "Threads.", labels=["process"])
    for process, used in usage.items():
        kinds = (("rss_anon", used.rss_anon), ("pss", used.pss), ("swap", used.swap))
        for kind, value in kinds:
            if value is not None:
                memory.add_metric([process, kind], value)
        if used.open_files is not None:
            files.add_metric([process], used.open_files)
        if used.threads is not None:
            threads.add_metric([process], used.threads)
    if "engine" in usage:
        memory.add_metric(["engine", "device"], stats.device_bytes)
        memory.add_metric(["engine", "kv_touched"], stats.kv_touched_bytes)
    yield memory
    yield files
    yield threads
    blocks = GaugeMetricFamily(
        _PREFIX + "python_blocks", "Memory blocks that Python holds.", labels=["process"]
    )
    blocks.add_metric(["api"], sys.getallocatedblocks())
    if "engine" in usage:
        blocks.add_metric(["engine"], stats.python_blocks)
    yield blocks


def _server(service: Service) -> Iterator[Metric]:
    engine = service.engine
    up = engine is not None and engine.started is not None and not engine.ended.is_set()
    yield _gauge("model_load_ratio", "How much of the model is loaded.", _loaded(service))
    yield _gauge("engine_up", "1 while the engine takes sequences.", float(up))
    info = InfoMetricFamily(_PREFIX + "build", "What serves.", labels=[])
    started = engine.started if engine is not None else None
    info.add_metric(
        [],
        {
            "version": service.version,
            "model": service.settings.served_name,
            "backend": started.backend if started is not None else "",
        },
    )
    yield info


def _loaded(service: Service) -> float:
    if service.phase is Phase.READY:
        return 1.0
    progress = service.engine.progress if service.engine is not None else None
    if progress is None or not progress.total:
        return 0.0
    return 1.0 if progress.phase == "warming" else progress.done / progress.total


def _aliases(service: Service, stats: Stats) -> Iterator[Metric]:
    """What the Gateway API's endpoint picker reads."""
    blocks = stats.blocks_used + stats.blocks_free + stats.blocks_cached
    for name, text, value in (
        ("num_requests_waiting", "See flatwake_requests_waiting.", service.admission.waiting),
        ("num_requests_running", "See flatwake_requests_running.", service.admission.running),
        ("kv_cache_usage_perc", "Share of KV blocks in use.", stats.blocks_used / (blocks or 1)),
    ):
        family = GaugeMetricFamily("vllm:" + name, text, labels=["model_name"])
        family.add_metric([service.settings.served_name], value)
        yield family


def _add(
    family: HistogramMetricFamily,
    labels: Sequence[str],
    bounds: Sequence[float],
    counts: Sequence[int],
    total: float,
) -> None:
    """Adds cumulative buckets; missing counts are zeros."""
    buckets, seen = [], 0
    padded = [*counts, *[0] * (len(bounds) + 1 - len(counts))]
    for bound, count in zip([*map(_bound, bounds), "+Inf"], padded, strict=True):
        seen += count
        buckets.append((bound, float(seen)))
    family.add_metric(labels, buckets, total)


def _bound(value: float) -> str:
    return str(float(value))
