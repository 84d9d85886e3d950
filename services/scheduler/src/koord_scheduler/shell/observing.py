"""The scheduler's metrics about single decisions, with the names that koord-scheduler in Go uses.

Source: scheduler-core spec, 15
"""

from collections import deque
from collections.abc import Sequence
from functools import partial
from typing import Final

from koordcore.events.explanations import PodUnschedulable
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from koord_scheduler.domain.framework.stopwatch import Stopwatch
from koord_scheduler.domain.loop.commit.work import Placement
from koord_scheduler.domain.loop.cycle.pod_explanations import PodExplanation
from koord_scheduler.domain.plugins.gang.round import EndedRound, JobAttempt
from koord_scheduler.shell.collectors import NodeCounts

_ATTEMPT_SECONDS: Final = (0.00002, 0.00005, 0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.05, 0.1, 1.0)
_PLUGIN_SECONDS: Final = (0.000001, 0.000002, 0.000005, 0.00001, 0.00002, 0.00005, 0.0001, 0.0005, 0.001, 0.01, 0.1)
_SLI_SECONDS: Final = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0)
_ROUND_SECONDS: Final = (0.001, 0.01, 0.1, 0.5, 1.0, 5.0, 10.0, 30.0, 60.0, 300.0, 600.0)
_VICTIMS: Final = tuple(float(1 << power) for power in range(7))


class _ProfileMetrics:
    """The metrics of one profile, with the label values looked up once."""

    def __init__(self, attempts: Counter, seconds: Histogram, timeouts: Counter, profile: str) -> None:
        self.scheduled = attempts.labels("scheduled", profile)
        self.unschedulable = attempts.labels("unschedulable", profile)
        self.refused = attempts.labels("error", profile)
        self.scheduled_seconds = seconds.labels("scheduled", profile)
        self.unschedulable_seconds = seconds.labels("unschedulable", profile)
        self.timeouts = timeouts.labels(profile)


class SchedulerMetrics:
    """The scheduler's Prometheus metrics about decisions, for all profiles. `profiles`: the scheduler names of the
    profiles, at least one.
    """

    def __init__(self, registry: CollectorRegistry, profiles: Sequence[str]) -> None:
        counter = partial(Counter, registry=registry)
        histogram = partial(Histogram, registry=registry, buckets=_ATTEMPT_SECONDS)
        attempts = counter("scheduler_schedule_attempts", "Attempts to schedule pods, by result", ["result", "profile"])
        seconds = histogram(
            "scheduler_scheduling_attempt_duration_seconds",
            "Time of one decision in the host's time",
            ["result", "profile"],
        )
        timeouts = counter("scheduler_scheduling_timeout", "Decisions without an outcome for too long", ["profile"])
        own = [_ProfileMetrics(attempts, seconds, timeouts, profile) for profile in profiles]
        self._by_profile = dict(zip(profiles, own, strict=True))
        self._first = own[0]
        self.sli_seconds = histogram(
            "scheduler_pod_scheduling_sli_duration_seconds",
            "From submission to a placement that the log has stored, in the run's time",
            buckets=_SLI_SECONDS,
        )
        self.in_flight = Gauge(
            "scheduler_appends_in_flight", "Batches that the log has not answered", registry=registry
        )
        self.refolds = counter(
            "scheduler_refused_decisions", "Decisions that the log refused because the facts had changed"
        )
        self._preemptions = counter("scheduler_preemption_attempts", "Attempts to make room at the cost of others")
        self._victims = histogram("scheduler_preemption_victims", "Pods that one preemption takes", buckets=_VICTIMS)
        self._rounds = histogram(
            "scheduler_gang_schedule_cycle_duration_seconds",
            "Turn of a gang group, in the run's time",
            ["reason", "job_size"],
            buckets=_ROUND_SECONDS,
        )
        self.status_seconds = histogram(
            "scheduler_update_elastic_quota_status_duration_seconds",
            "Finding out how changed quotas and gangs stand, in the host's time",
        )
        self.question_seconds = histogram(
            "scheduler_capacity_question_duration_seconds",
            "Answers to capacity questions, in the host's time",
            buckets=_ROUND_SECONDS,
        )
        self.question_pause_seconds = histogram(
            "scheduler_capacity_question_pause_seconds",
            "Pause of the decisions while the process is forked for a capacity question, in the host's time",
        )
        self._job_preemptions = histogram(
            "scheduler_job_preemption_duration_seconds",
            "Attempts that looked for room for a whole job at the cost of others, in the host's time",
            ["jobName", "result"],
        )
        self._batches = histogram(
            "scheduler_inline_batch_schedule_duration_seconds",
            "Attempts that placed all members of a planned job at once, in the host's time",
            ["result"],
        )
        self._by_pod = histogram(
            "scheduler_batch_algorithm_by_pod_duration_seconds",
            "Time of placing a planned job at once, for each of its pods",
        )
        self._by_node = histogram(
            "scheduler_batch_algorithm_by_node_duration_seconds", "The same for each of its nodes"
        )
        self._next_pods = histogram(
            "scheduler_next_pod_delete_from_queue_latency",
            "Taking a pod out of the queue past its turn, in every 100th attempt, in the host's seconds",
            buckets=_PLUGIN_SECONDS,
        )
        self.quota_seconds = histogram(
            "scheduler_elastic_quota_process_latency",
            "Taking in a quota's change, in the host's seconds",
            ["operation"],
        )
        self._plugins = histogram(
            "scheduler_plugin_execution_duration_seconds",
            "Calls of plugins in every 100th attempt, in the host's time",
            ["plugin", "extension_point", "status"],
            buckets=_PLUGIN_SECONDS,
        )
        self._points = histogram(
            "scheduler_framework_extension_point_duration_seconds",
            "All plugins of an extension point in every 100th attempt, in the host's time",
            ["extension_point", "status", "profile"],
            buckets=_PLUGIN_SECONDS,
        )
        self.evaluated = NodeCounts(
            "scheduler_pod_scheduling_evaluated_nodes", "Nodes looked at in a successful attempt"
        )
        self.feasible = NodeCounts("scheduler_pod_scheduling_feasible_nodes", "Feasible nodes of a successful attempt")
        registry.register(self.evaluated)
        registry.register(self.feasible)

    def of(self, profile: str) -> _ProfileMetrics:
        """Return the metrics of a profile by its scheduler name; those of the first profile for any other name."""
        return self._by_profile.get(profile, self._first)

    def placed(self, placement: Placement, profile: str, seconds: float) -> None:
        """Record the duration and the nodes of an attempt that found a node. It is counted as scheduled only when the
        log has stored the placement (`of(profile).scheduled`). `seconds`: duration of the attempt in seconds of the
        host.
        """
        self.of(profile).scheduled_seconds.observe(seconds)
        self.evaluated.observe(placement.explanation.nodes_considered)
        self.feasible.observe(placement.explanation.nodes_feasible)

    def failed(self, explanations: Sequence[PodExplanation], profile: str, seconds: float) -> None:
        """Record an attempt that found no node. `explanations`: explanations of the pods that were not placed; the
        first is that of the attempted pod. `seconds`: duration of the attempt in seconds of the host.
        """
        own = self.of(profile)
        own.unschedulable.inc()
        own.unschedulable_seconds.observe(seconds)
        event = explanations[0].event if explanations else None
        if isinstance(event, PodUnschedulable) and event.diagnosis is not None and event.diagnosis.preemption:
            self._preemptions.inc()
            if event.diagnosis.preemption.victims:
                self._victims.observe(len(event.diagnosis.preemption.victims))

    def jobs_attempted(self, attempts: deque[JobAttempt], seconds: float) -> None:
        """Record the attempts that concerned whole jobs in the last decision, and remove them from `attempts`.
        `seconds`: duration of the decision in seconds of the host.
        """
        for attempt in attempts:
            result = "success" if attempt.succeeded else "failure"
            if attempt.is_preemption:
                self._job_preemptions.labels(attempt.job, result).observe(seconds)
            else:
                self._batches.labels(result).observe(seconds)
                self._by_pod.observe(seconds / max(1, attempt.pods))
                self._by_node.observe(seconds / max(1, attempt.nodes))
        attempts.clear()

    def measured(self, watch: Stopwatch) -> None:
        """Record the durations of the plugin calls in one timed attempt."""
        for seconds in watch.next_pod_seconds:
            self._next_pods.observe(seconds)
        points: dict[tuple[str, str], tuple[str, float]] = {}
        for timing in watch.timings:
            self._plugins.labels(timing.plugin, timing.point, timing.status).observe(timing.seconds)
            _, before = points.get((timing.profile, timing.point), ("", 0.0))
            points[timing.profile, timing.point] = (timing.status, before + timing.seconds)
        for (profile, point), (status, seconds) in points.items():
            self._points.labels(point, status, profile).observe(seconds)

    def rounds_ended(self, ended: list[EndedRound], now: float) -> None:
        """Record the duration of each round of a gang group that has ended, and remove the rounds from `ended`. `now`:
        Unix seconds of the service's `Clock`.
        """
        for one in ended:
            self._rounds.labels(str(one.reason), one.job_size).observe(max(0.0, now - one.began_at))
        ended.clear()
