"""Metrics of the descheduler.

Source:
    descheduler spec, 13
"""

from collections.abc import Iterable

from koordcore.events.descheduling.rounds import ClassifiedNodes
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from koord_descheduler.domain.framework.eviction import Attempt, Result

_ROUND_SECONDS = (0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0)


class DeschedulerMetrics:
    """Counts evictions by result, plugin, namespace and node, shows classes of nodes, and measures rounds.

    Args:
        registry: Receives the metrics.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        self.evicted = Counter(
            "descheduler_pods_evicted",
            "Requests for evictions by how they ended.",
            ["result", "strategy", "namespace", "node"],
            registry=registry,
        )
        self.round_seconds = Histogram(
            "descheduler_round_duration_seconds", "Time of one round.", registry=registry, buckets=_ROUND_SECONDS
        )

        self.nodes = Gauge(
            "descheduler_nodes",
            "Nodes of a pool by the class that the last round gave them.",
            ["plugin", "pool", "class"],
            registry=registry,
        )

    def classify(self, classified: Iterable[ClassifiedNodes]) -> None:
        """Show how the last round classified nodes."""
        for each in classified:
            for name, number in (
                ("under", len(each.under)),
                ("over", len(each.over)),
                ("target", each.nodes - len(each.under) - len(each.over)),
            ):
                self.nodes.labels(each.plugin, each.pool, name).set(number)

    def count(self, attempts: Iterable[Attempt], refused: frozenset[str]) -> None:
        """Count the attempts of a round.

        Args:
            attempts: The attempts.
            refused: Uids of the pods whose eviction the log refused.
        """
        for attempt in attempts:
            result = Result.ERROR if attempt.pod.uid in refused else attempt.result
            self.evicted.labels(str(result), attempt.plugin, attempt.pod.namespace, attempt.pod.node).inc()
