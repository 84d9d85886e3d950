"""Metrics that are computed from the state when they are scraped.

Source: scheduler-core spec, 15
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector

from koord_scheduler.domain.loop.queue.queued_pod import QueueState
from koord_scheduler.domain.loop.state.state import SchedulerState
from koord_scheduler.domain.plugins.gang.summary import waiting_groups
from koord_scheduler.domain.plugins.quota.reports import SPEC, STATUS, quota_gauges
from koord_scheduler.domain.plugins.reservation.books import MOST_POWER
from koord_scheduler.domain.plugins.reservation.reports import PHASES, known_reservations, phase_of, resource_gauges

_QUEUES: Final = {
    QueueState.ACTIVE: "active",
    QueueState.BACKOFF: "backoff",
    QueueState.UNSCHEDULABLE: "unschedulable",
    QueueState.GATED: "gated",
}
_QUOTA_LABELS: Final = ("name", "resource", "tree", "is_parent", "parent", "field")


class NodeCounts(Collector):
    """A Prometheus histogram of numbers of nodes, with one bucket for each power of two up to 2^23."""

    def __init__(self, name: str, about: str) -> None:
        self._name = name
        self._about = about
        self._counts: Counter[int] = Counter()
        self._sum = 0

    def observe(self, count: int) -> None:
        self._counts[min((count - 1).bit_length() if count else 0, MOST_POWER + 1)] += 1
        self._sum += count

    def collect(self) -> Iterator[HistogramMetricFamily]:
        yield _histogram(self._name, self._about, self._counts, self._sum)


def _histogram(name: str, about: str, by_power: Mapping[int, int], total: int) -> HistogramMetricFamily:
    """Return a histogram of numbers of nodes. `by_power`: power of two -> number of observations up to it and above the
    power before.
    """
    seen = 0
    buckets: list[tuple[str, float]] = []
    for power in range(MOST_POWER + 2):
        seen += by_power.get(power, 0)
        buckets.append(("+Inf" if power > MOST_POWER else str(float(1 << power)), seen))
    return HistogramMetricFamily(name, about, buckets=buckets, sum_value=total)


class StateFigures(Collector):
    """The metrics that are computed from the scheduler's state on each scrape: queue, gangs, quotas, Reservations."""

    def __init__(self, state: SchedulerState) -> None:
        self._state = state

    def collect(self) -> Iterator[GaugeMetricFamily | CounterMetricFamily | HistogramMetricFamily]:
        yield self._pending()
        yield self._incoming()
        yield self._unschedulable()
        yield self._not_well_planned()
        yield GaugeMetricFamily(
            "scheduler_waiting_gang_group_number",
            "Gang groups with a member that waits with a node",
            value=waiting_groups(self._state.books.gangs),
        )
        yield from self._quotas()
        yield from self._reservations()
        yield from self._selector_queries()

    def _pending(self) -> GaugeMetricFamily:
        family = GaugeMetricFamily("scheduler_pending_pods", "Pods without a node", labels=["queue"])
        counts = self._state.queue.counts()
        for place, name in _QUEUES.items():
            family.add_metric([name], counts[place])
        return family

    def _incoming(self) -> CounterMetricFamily:
        family = CounterMetricFamily(
            "scheduler_queue_incoming_pods", "How often pods came to a queue, and why", labels=["queue", "event"]
        )
        for (place, came), count in sorted(self._state.queue.incoming.items(), key=lambda entry: entry[0][1]):
            family.add_metric([_QUEUES[place], came], count)
        return family

    def _not_well_planned(self) -> GaugeMetricFamily:
        found = GaugeMetricFamily(
            "scheduler_secondary_device_not_well_planned",
            "1 for nodes whose secondary devices are said to fit and did not",
            labels=["node"],
        )
        for node in sorted(self._state.books.devices.not_well_planned):
            found.add_metric([node], 1)
        return found

    def _unschedulable(self) -> GaugeMetricFamily:
        counts: dict[tuple[str, str], int] = {}
        for pod in self._state.queue.unschedulable_pods():
            for plugin in pod.refused_by:
                key = plugin, pod.subject.profile
                counts[key] = counts.get(key, 0) + 1
        family = GaugeMetricFamily(
            "scheduler_unschedulable_pods", "Waiting pods by the plugins that refuse them", labels=["plugin", "profile"]
        )
        for key, count in sorted(counts.items()):
            family.add_metric(key, count)
        return family

    def _selector_queries(self) -> Iterator[CounterMetricFamily | HistogramMetricFamily]:
        queries = self._state.books.reservations.selector_queries
        family = CounterMetricFamily(
            "scheduler_reservation_selector_index_query",
            "Attempts of pods with a reservationSelector; hit: one of its labels is indexed",
            labels=["result"],
        )
        family.add_metric(["hit"], queries.hits)
        family.add_metric(["miss"], queries.misses)
        yield family
        yield _histogram(
            "scheduler_reservation_selector_index_candidates_count",
            "Nodes with a Reservation that a pod may use, for each hit",
            queries.by_power,
            queries.nodes,
        )

    def _reservations(self) -> Iterator[GaugeMetricFamily]:
        books = self._state.books.reservations
        phases = GaugeMetricFamily(
            "scheduler_reservation_status_phase", "1 for the phase that a Reservation is in", labels=["name", "phase"]
        )
        for entry in known_reservations(books):
            for phase in PHASES:
                phases.add_metric([entry.name, phase], int(phase == phase_of(entry)))
        amounts = GaugeMetricFamily(
            "scheduler_reservation_resource",
            "What a Reservation holds, what its owners request, and the ratio of both",
            labels=["type", "name", "resource", "unit"],
        )
        for gauge in resource_gauges(books):
            amounts.add_metric([gauge.type, gauge.name, gauge.resource, gauge.unit], gauge.value)
        yield from (phases, amounts)

    def _quotas(self) -> Iterator[GaugeMetricFamily]:
        families = {
            name: GaugeMetricFamily(f"scheduler_{name}", about, labels=_QUOTA_LABELS)
            for name, about in ((SPEC, "What a quota is set to"), (STATUS, "How a quota stands"))
        }
        for gauge in quota_gauges(self._state.books.quotas):
            labels = (gauge.name, gauge.resource, gauge.tree, str(gauge.is_parent).lower(), gauge.parent, gauge.field)
            families[gauge.metric].add_metric(labels, gauge.value)
        yield from families.values()
