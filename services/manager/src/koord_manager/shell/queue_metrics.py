"""Metrics of the work queue, with the names that Kubernetes' controllers use."""

from collections.abc import Iterator

from prometheus_client import CollectorRegistry, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from koord_manager.domain.work_queue import WorkQueue

_BUCKETS = (0.01, 0.1, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 300.0)


class _QueueCollector(Collector):
    """Reads the figures of a queue when they are scraped."""

    def __init__(self, queue: WorkQueue) -> None:
        self._queue = queue

    def collect(self) -> Iterator[Metric]:
        depth = GaugeMetricFamily("workqueue_depth", "Current number of ready keys", labels=["name"])
        adds = CounterMetricFamily("workqueue_adds", "Number of keys added", labels=["name"])
        retries = CounterMetricFamily("workqueue_retries", "Number of retries with back-off", labels=["name"])
        wait = GaugeMetricFamily(
            "workqueue_longest_wait_seconds", "Time that the oldest ready key has waited, in seconds", labels=["name"]
        )
        for name in self._queue.controllers():
            added, retried = self._queue.counts(name)
            depth.add_metric([name], self._queue.depth(name))
            adds.add_metric([name], added)
            retries.add_metric([name], retried)
            wait.add_metric([name], self._queue.longest_wait(name))
        yield from (depth, adds, retries, wait)


def add_queue_metrics(registry: CollectorRegistry, queue: WorkQueue) -> None:
    """Publish the depth, adds, retries and waits of a queue."""
    duration = Histogram(
        "workqueue_queue_duration_seconds",
        "Time that a key was ready before its controller took it, in seconds",
        ["name"],
        buckets=_BUCKETS,
        registry=registry,
    )
    queue.on_take = lambda name, seconds: duration.labels(name).observe(seconds)
    registry.register(_QueueCollector(queue))
