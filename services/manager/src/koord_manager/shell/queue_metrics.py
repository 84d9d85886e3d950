"""Metrics of the work queues, with the names that Kubernetes' controllers use."""

from collections.abc import Callable, Iterator

from prometheus_client import CollectorRegistry, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from koord_manager.domain.work_queue import WorkQueue

_BUCKETS = (0.01, 0.1, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 300.0)


class QueueMetrics(Collector):
    """Prometheus metrics of all work queues. The queues are read at each request for the metrics."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._sources: list[Callable[[], WorkQueue | None]] = []
        self._duration = Histogram(
            "workqueue_queue_duration_seconds",
            "Time that a key was ready before its controller took it, in seconds",
            ["name"],
            buckets=_BUCKETS,
            registry=registry,
        )
        registry.register(self)

    def add(self, source: Callable[[], WorkQueue | None]) -> None:
        """Publish the metrics of one more work queue. `source` returns the queue, or None while it does not exist."""
        self._sources.append(source)

    def taken(self, name: str, seconds: float) -> None:
        """Record that a key of the queue `name` was ready for `seconds` before its controller took it."""
        self._duration.labels(name).observe(seconds)

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics of all work queues, for the Prometheus client."""
        depth = GaugeMetricFamily("workqueue_depth", "Current number of ready keys", labels=["name"])
        adds = CounterMetricFamily("workqueue_adds", "Number of keys added", labels=["name"])
        retries = CounterMetricFamily("workqueue_retries", "Number of retries with back-off", labels=["name"])
        wait = GaugeMetricFamily(
            "workqueue_longest_wait_seconds", "Time that the oldest ready key has waited, in seconds", labels=["name"]
        )
        for queue in [queue for source in self._sources if (queue := source()) is not None]:
            for name in queue.controllers():
                added, retried = queue.counts(name)
                depth.add_metric([name], queue.depth(name))
                adds.add_metric([name], added)
                retries.add_metric([name], retried)
                wait.add_metric([name], queue.longest_wait(name))
        yield from (depth, adds, retries, wait)
