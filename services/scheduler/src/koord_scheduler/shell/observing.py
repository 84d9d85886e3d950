"""The scheduler's own figures, under the names of the reference. source    scheduler-core spec, 15"""

from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from koord_scheduler.domain.queue import Place, SchedulingQueue

_QUEUES: Final = {
    Place.ACTIVE: "active",
    Place.BACKOFF: "backoff",
    Place.UNSCHEDULABLE: "unschedulable",
    Place.GATED: "gated",
}
_ATTEMPT_SECONDS: Final = (0.00002, 0.00005, 0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.05, 0.1, 1.0)
_SLI_SECONDS: Final = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0)


class SchedulerMetrics:
    """Instruments with their label values looked up once. profile: the scheduler's name."""

    def __init__(self, registry: CollectorRegistry, profile: str) -> None:
        attempts = Counter(
            "scheduler_schedule_attempts",
            "Attempts to schedule pods, by result",
            ["result", "profile"],
            registry=registry,
        )
        self.scheduled = attempts.labels("scheduled", profile)
        self.unschedulable = attempts.labels("unschedulable", profile)
        self.refused = attempts.labels("error", profile)
        self.attempt_seconds = Histogram(
            "scheduler_scheduling_attempt_duration_seconds",
            "Time of one decision in the host's time",
            ["result", "profile"],
            registry=registry,
            buckets=_ATTEMPT_SECONDS,
        )
        self.scheduled_seconds = self.attempt_seconds.labels("scheduled", profile)
        self.unschedulable_seconds = self.attempt_seconds.labels("unschedulable", profile)
        self.sli_seconds = Histogram(
            "scheduler_pod_scheduling_sli_duration_seconds",
            "From submission to a placement that the log has stored, in the run's time",
            registry=registry,
            buckets=_SLI_SECONDS,
        )
        self._pending = Gauge("scheduler_pending_pods", "Pods without a node", ["queue"], registry=registry)
        self.in_flight = Gauge(
            "scheduler_appends_in_flight", "Batches that the log has not answered", registry=registry
        )
        self.refolds = Counter(
            "scheduler_refused_decisions",
            "Decisions that the log refused because the facts had changed",
            registry=registry,
        )

    def watch(self, queue: SchedulingQueue) -> None:
        """Read the queue's counts whenever the metrics are asked for."""
        for place, name in _QUEUES.items():
            self._pending.labels(name).set_function(lambda place=place: queue.counts()[place])
