"""Metrics of the descheduler. Audit records and calls of evictions are counted from the facts of the log.

Source:
    descheduler spec, 7.6, 12, 13
"""

from collections import Counter as Counts
from collections.abc import Iterable, Iterator, Set
from typing import TYPE_CHECKING, TypeAlias

from koordcore.events.descheduling import ClassifiedNodes
from koordcore.events.envelope import Event, StoredEvent
from koordcore.events.gateway import PodEvicted, PodEvictionDelayed, PodEvictionFailed
from koordcore.ports.clock import Clock
from koordcore.ports.leadership import Leadership, Term
from koordcore.service.telemetry.metrics import SeriesLifetime
from koordcore.state.aggregates import EvictionState
from koordcore.state.drains import DrainState
from koordcore.state.fold import AggregateState
from koordcore.state.migrations import MigrationState
from koordcore.stories.acts import Closer
from koordcore.stories.modifications import DESCHEDULER, KINDS, modifications_of
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from koord_descheduler.domain.framework.eviction import Attempt, Result
from koord_descheduler.domain.jobs.viewing import JOBS
from koord_descheduler.domain.view.building import ViewBuilder

if TYPE_CHECKING:
    from contextlib import AbstractContextManager


_ROUND_SECONDS = (0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0)
_JOB_SECONDS = (1.0, 3.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0)


_Labels: TypeAlias = tuple[str, str, str, str]
"""Result, strategy, namespace and node."""


class EvictionCounter(Collector):
    """The series of nodes and namespaces that are gone are dropped after `KEPT_SECONDS`."""

    def __init__(self, builder: ViewBuilder, clock: Clock) -> None:
        def exists(labels: _Labels) -> bool:
            *_, namespace, node = labels
            return builder.has_node(node) and builder.has_namespace(namespace)

        self._lifetime = SeriesLifetime[_Labels](exists, lambda labels: self._counter.remove(*labels), clock.monotonic)
        self._counter = Counter(
            "descheduler_pods_evicted",
            "Requests for evictions by how they ended.",
            ["result", "strategy", "namespace", "node"],
            registry=None,
        )

    def describe(self) -> Iterable[Metric]:
        return self._counter.describe()

    def collect(self) -> Iterable[Metric]:
        """Without the series of what is gone."""
        self._lifetime.forget_gone()
        return self._counter.collect()

    def add(self, result: Result, strategy: str, namespace: str, node: str) -> None:
        labels = (str(result), strategy, namespace, node)
        self._counter.labels(*labels).inc()
        self._lifetime.touch(labels)


class DeschedulerMetrics:
    def __init__(self, registry: CollectorRegistry, builder: ViewBuilder, clock: Clock) -> None:
        self._evicted = EvictionCounter(builder, clock)
        registry.register(self._evicted)
        self.round_seconds = Histogram(
            "descheduler_round_duration_seconds", "Time of one round.", registry=registry, buckets=_ROUND_SECONDS
        )
        self.job_seconds = Histogram(
            "descheduler_migration_job_duration_seconds",
            "Time of one migration from arbitration to its end.",
            ["result"],
            registry=registry,
            buckets=_JOB_SECONDS,
        )
        self._plugin_seconds = Histogram(
            "descheduler_plugin_duration_seconds",
            "Time of one plugin in one round.",
            ["plugin"],
            registry=registry,
            buckets=_ROUND_SECONDS,
        )
        self._audited = Counter(
            "descheduler_audit_records",
            "Records of the audit by what they change, and by their decision.",
            ["action", "decision"],
            registry=registry,
        )
        self._limited = Counter(
            "descheduler_object_limited",
            "Looks at jobs that wait because pods of the same object were evicted a short time ago.",
            ["type"],
            registry=registry,
        )

        self.nodes = Gauge(
            "descheduler_nodes",
            "Nodes of a pool by the class that the last round gave them.",
            ["plugin", "pool", "class"],
            registry=registry,
        )

    def classify(self, classified: Iterable[ClassifiedNodes]) -> None:
        for each in classified:
            for name, number in (
                ("under", len(each.under)),
                ("over", len(each.over)),
                ("target", each.nodes - len(each.under) - len(each.over)),
            ):
                self.nodes.labels(each.plugin, each.pool, name).set(number)

    def count(self, attempts: Iterable[Attempt], refused: Set[str]) -> None:
        """Count the attempts of a round that did not succeed, by their result. Dry runs count here, too.

        An attempt in `refused`, by uid of the pod, counts as an error. Successful ones count in `called`.
        """
        for attempt in attempts:
            result = Result.ERROR if attempt.pod.uid in refused else attempt.result
            if result is not Result.SUCCESS:
                self._evicted.add(result, attempt.plugin, attempt.pod.namespace, attempt.pod.node)

    def called(self, trigger: str, namespace: str, node: str, *, is_done: bool) -> None:
        """Count the call of an eviction, by a migration job or without one. `trigger`: "" if a user asked for it."""
        self._evicted.add(Result.SUCCESS if is_done else Result.ERROR, trigger, namespace, node)

    def plugin(self, name: str) -> "AbstractContextManager[object]":
        return self._plugin_seconds.labels(name).time()

    def audited(self, action: str, decision: str) -> None:
        self._audited.labels(action, decision).inc()

    def limited(self, kind: str) -> None:
        """`kind`: type of the bucket of the object limiter that delayed a job."""
        self._limited.labels(kind).inc()


class FoldMetrics(Collector):
    """Migration jobs and drained pods by phase, counted from the fold when somebody asks for the metrics."""

    def __init__(self, builder: ViewBuilder) -> None:
        self._builder = builder

    def describe(self) -> Iterable[GaugeMetricFamily]:
        """The registry asks for it before the log is folded."""
        return (_jobs(), _waiting(0), _drained())

    def collect(self) -> Iterator[GaugeMetricFamily]:
        facts = self._builder.state.of_kind(MigrationState)
        uids = [str(document["metadata"].get("uid", "")) for _, document in self._builder.customs.documents(JOBS)]
        of_jobs = [facts.get(uid) for uid in uids]
        jobs, drained = _jobs(), _drained()
        for phase, number in Counts((each.progress.phase if each else "") or "Pending" for each in of_jobs).items():
            jobs.add_metric([phase], number)
        phases = Counts(
            pod.phase for drain in self._builder.state.of_kind(DrainState).values() for pod in drain.pods.values()
        )
        for phase, number in phases.items():
            drained.add_metric([phase], number)
        yield jobs
        yield _waiting(sum(each is None or not (each.passed_at or each.ended_at) for each in of_jobs))
        yield drained


def _jobs() -> GaugeMetricFamily:
    return GaugeMetricFamily("descheduler_migration_jobs", "Migration jobs by phase.", labels=["phase"])


def _waiting(number: int) -> GaugeMetricFamily:
    return GaugeMetricFamily("descheduler_arbitration_waiting", "Migration jobs that wait for arbitration.", number)


def _drained() -> GaugeMetricFamily:
    return GaugeMetricFamily("descheduler_drain_pods", "Pods of drained nodes by phase.", labels=["phase"])


class AuditCounter:
    """Counts the audit records in facts that this instance folds while it leads.

    Any instance may have written the facts. The former leader counted the facts that were folded before this term, so
    that no record counts twice.
    """

    def __init__(self, leadership: Leadership, metrics: DeschedulerMetrics) -> None:
        self._leadership = leadership
        self._metrics = metrics
        self._term: Term | None = None
        self._closing: dict[str, Closer] = {}

    def begin(self) -> None:
        """Facts that are folded from now on count."""
        self._term = self._leadership.term

    def count(
        self, stored: StoredEvent, event: Event, before: AggregateState | None, after: AggregateState | None
    ) -> None:
        """Count the records of a fact, by action and decision, and a call of the eviction API. No-op without a term.

        `before`, `after`: state of its aggregate; None if it did not exist, or no longer exists.
        """
        if stored.ref.kind not in KINDS or self._term is None or self._term != self._leadership.term:
            return
        for record in modifications_of(stored, event, before, after, None, self._closing):
            self._metrics.audited(record.action, record.decision)
        is_call = isinstance(event, PodEvicted | PodEvictionDelayed | PodEvictionFailed)
        if is_call and isinstance(before, EvictionState) and before.request.initiator == DESCHEDULER:
            asked, is_done = before.request, isinstance(event, PodEvicted) and not event.gone
            self._metrics.called(asked.trigger, asked.namespace, asked.node, is_done=is_done)
