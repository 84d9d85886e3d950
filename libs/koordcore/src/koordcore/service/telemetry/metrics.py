"""Metrics of a process: a Prometheus registry, process metrics, and metrics of the log.

Metrics use base units and few labels. Some metrics of Koordinator have names of objects as labels; strangers do not see
their series (`PUBLIC_LABELS`). Counters end with `_total`. Bus adapters use `BusMetrics`. Services create their own
metrics on `Metrics.registry`, and forget series of objects that are gone (`SeriesLifetime`).

Source: event-bus spec, 12 (names of the bus metrics, exact).
"""

import asyncio
from collections.abc import Callable, Hashable, Iterable
from functools import partial
from typing import Final, Generic, TypeVar

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    GCCollector,
    Histogram,
    PlatformCollector,
    ProcessCollector,
    disable_created_metrics,
)
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from koordcore.bus import metrics as measured

# From a local append (0.3 ms) to the deadline of a retried one (30 s).
APPEND_SECONDS_BUCKETS: Final = (
    0.0005,
    0.001,
    0.002,
    0.005,
    0.01,
    0.02,
    0.05,
    0.1,
    0.25,
    0.5,
    1.0,
    2.5,
    5.0,
    10.0,
    30.0,
)


class BusMetrics(measured.BusMetrics):
    """Prometheus metrics of how this process uses the log, as `koordcore.bus.metrics.BusMetrics` defines them."""

    def __init__(self, registry: CollectorRegistry) -> None:
        counter = partial(Counter, registry=registry)
        gauge = partial(Gauge, registry=registry)
        self._append = counter("koord_bus_append", "Appends by outcome", ["outcome"])
        self._append_full = gauge("koord_bus_append_full", "1: the log had no room for the last append", ["stream"])
        self._append_seconds = Histogram(
            "koord_bus_append_seconds",
            "Time from the first attempt of an append to its outcome",
            registry=registry,
            buckets=APPEND_SECONDS_BUCKETS,
        )
        self._batches_refused = counter(
            "koord_bus_batches_refused", "Attempts of atomic batches refused because too many were open"
        )
        self._conflicts = counter("koord_bus_conflicts", "Refused expectations", ["kind"])
        self._lag_events = gauge("koord_bus_follower_lag_events", "Events not folded yet", ["fold"])
        self._lag_seconds = gauge("koord_bus_follower_lag_seconds", "Age of the oldest event not folded yet", ["fold"])
        self._halted = gauge("koord_bus_follower_halted", "1: the fold stopped before an event", ["fold"])
        self._dlq_depth = gauge("koord_bus_dlq_depth", "Parked work items", ["consumer"])
        self._gaps = counter("koord_bus_gap", "Gaps that made a follower start again", ["fold"])
        self._node_refused = counter(
            "koord_bus_node_messages_refused", "Messages of a node that were not taken", ["node", "what"]
        )
        self._snapshot_age = gauge("koord_bus_snapshot_age_seconds", "Age of the newest snapshot", ["fold"])
        self._observations_dropped = counter(
            "koord_bus_observations_dropped", "Reports, explanations and audit records not sent", ["stream", "reason"]
        )
        self._log_bytes = gauge("koord_bus_log_bytes", "Size of the stream of facts")
        self._log_limit = gauge("koord_bus_log_limit_bytes", "Largest size of the stream of facts")
        self._outcomes: dict[str, Counter] = {}

    def append(self, outcome: str, seconds: float) -> None:
        counter = self._outcomes.get(outcome)
        if counter is None:
            counter = self._outcomes[outcome] = self._append.labels(outcome)
        counter.inc()
        if outcome != "unavailable":
            self._append_full.labels("ev").set(outcome == "full")
        self._append_seconds.observe(seconds)

    def batch_refused(self) -> None:
        self._batches_refused.inc()

    def conflict(self, kind: str) -> None:
        self._conflicts.labels(kind).inc()

    def follower_lag(self, fold: str, *, events: int, seconds: float) -> None:
        self._lag_events.labels(fold).set(events)
        self._lag_seconds.labels(fold).set(seconds)

    def follower_halted(self, fold: str, *, halted: bool) -> None:
        self._halted.labels(fold).set(1 if halted else 0)

    def dlq_depth(self, consumer: str, depth: int) -> None:
        self._dlq_depth.labels(consumer).set(depth)

    def gap(self, fold: str) -> None:
        self._gaps.labels(fold).inc()

    def node_refused(self, node: str, what: str) -> None:
        self._node_refused.labels(node, what).inc()

    def log_size(self, used: int, limit: int) -> None:
        self._log_bytes.set(used)
        self._log_limit.set(limit)

    def observation_dropped(self, stream: str, reason: str) -> None:
        self._observations_dropped.labels(stream, reason).inc()

    def snapshot_age(self, fold: str, seconds: float) -> None:
        self._snapshot_age.labels(fold).set(seconds)


class Metrics:
    """The Prometheus registry of one process, with process metrics and metrics of the log."""

    def __init__(self, service: str, *, version: str = "", instance: str = "") -> None:
        # The library would add a `_created` series to each counter: twice the series, and names that the reference does
        # not have.
        disable_created_metrics()
        self.registry = CollectorRegistry(auto_describe=False)
        ProcessCollector(registry=self.registry)
        PlatformCollector(registry=self.registry)
        GCCollector(registry=self.registry)
        info = Gauge("koord_service_info", "1", ["service", "version", "instance"], registry=self.registry)
        info.labels(service, version, instance).set(1)
        self.bus = BusMetrics(self.registry)
        self.loop_lag_seconds = Histogram(
            "koord_event_loop_lag_seconds",
            "How much later than asked for the event loop woke a timer",
            registry=self.registry,
            buckets=(0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0),
        )
        self.http_requests = Counter(
            "koord_http_requests", "Requests served", ["method", "handler", "code"], registry=self.registry
        )
        self.http_refusals = Counter(
            "koord_http_refusals",
            "Refused requests and closed connections: credentials, role, rate, site, size, time or connections",
            ["reason"],
            registry=self.registry,
        )
        self.http_seconds = Histogram(
            "koord_http_request_seconds", "Time to the start of the answer", ["handler"], registry=self.registry
        )

    async def render(self, accept: str = "", *, with_names: bool = True) -> tuple[bytes, str]:
        """Return body and content type of the answer to `/metrics`. The values are read at once, in the event loop. A
        thread writes the text, because 5,000 Reservations make 50,000 lines, and the event loop must not wait for them.
        `accept`: Header `Accept` of the request, which selects the format. `with_names`: False leaves out series that
        may name objects.
        """
        encode, content_type = choose_encoder(accept)
        families = list(self.registry.collect())
        if not with_names:
            families = without_names(families)
        return await asyncio.to_thread(encode, _Collected(families)), content_type


# Labels whose values are words of our own or of the configuration. Values of all others may be names of objects. So a
# series with another label is shown only to senders who may see names, and a new label is hidden until it is listed.
PUBLIC_LABELS: Final = frozenset(
    (
        *("action", "answer", "check", "class", "code", "consumer", "controller", "decision", "event"),
        *("extension_point", "field", "fold", "generation", "handler", "healthy", "implementation", "job_size", "kind"),
        *("le", "level", "major", "method", "minor", "object_type", "operation", "outcome", "part", "patchlevel"),
        *("phase", "plugin", "plugin_name", "policy", "pool", "profile", "purpose", "quantile", "queue", "reason"),
        *("resource", "result", "stage", "status", "stream", "table", "type", "unit", "vendor", "version"),
        "webhook_type",
    )
)
# Beginnings of metrics whose label `name` is a work queue or an extension.
_NAMED_BY_US: Final = ("workqueue_", "koord_agent_extension_failures")


def without_names(families: Iterable[Metric]) -> list[Metric]:
    """Return the metrics without series that may name objects: pods, nodes, namespaces, quotas, Reservations."""
    found: list[Metric] = []
    for family in families:
        labels = PUBLIC_LABELS | {"name"} if family.name.startswith(_NAMED_BY_US) else PUBLIC_LABELS
        kept = [sample for sample in family.samples if labels.issuperset(sample.labels)]
        if kept:
            shown = Metric(family.name, family.documentation, family.type, family.unit)
            shown.samples = kept
            found.append(shown)
    return found


class _Collected(Collector):
    """Metrics with the values that they had at one moment."""

    def __init__(self, metrics: list[Metric]) -> None:
        self._metrics = metrics

    def collect(self) -> list[Metric]:
        """Return the metrics whose values `Metrics.render` has read before; the Prometheus client calls it."""
        return self._metrics


K = TypeVar("K", bound=Hashable)

# Time for which series are kept after their object is gone, so that Prometheus reads the last values.
KEPT_SECONDS: Final = 300.0


class SeriesLifetime(Generic[K]):
    """Removes the series of objects that are gone. Objects come and go for as long as the process runs.

    Args:
        now: Returns the seconds of a monotonic clock.
    """

    def __init__(self, exists: Callable[[K], bool], remove: Callable[[K], None], now: Callable[[], float]) -> None:
        self._exists = exists
        self._remove = remove
        self._now = now
        self._seen: dict[K, float] = {}
        """Key -> seconds at which its series were set, or its object existed."""
        self._next_look = 0.0

    def touch(self, key: K) -> None:
        """Note that the series of a key were set. If nobody reads the metric, this also calls `forget_gone`, once in
        `KEPT_SECONDS`.
        """
        now = self._now()
        if now >= self._next_look:
            self.forget_gone()
        self._seen[key] = now

    def forget_gone(self) -> None:
        """Remove the series of objects that have been gone for `KEPT_SECONDS`. Call it before the metric is read."""
        now = self._now()
        self._next_look = now + KEPT_SECONDS
        for key, at in list(self._seen.items()):
            if self._exists(key):
                self._seen[key] = now
            elif now - at > KEPT_SECONDS:
                del self._seen[key]
                self._remove(key)
