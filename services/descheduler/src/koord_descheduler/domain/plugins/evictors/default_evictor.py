"""DefaultEvictor: filter and evict plugin of the Kubernetes descheduler. It evicts at once, without a migration job.

Source:
    descheduler spec, 6.3
"""

from collections.abc import Mapping
from typing import Final

from koordcore.events.descheduling import Inputs

from koord_descheduler.domain.arguments.common import upstream_args
from koord_descheduler.domain.arguments.default_evictor import DefaultEvictorArgs, check
from koord_descheduler.domain.evictability.default_filter import DefaultFilter
from koord_descheduler.domain.framework.plugin import Point
from koord_descheduler.domain.framework.registry import PluginKind
from koord_descheduler.domain.view.cluster import ClusterView
from koord_descheduler.domain.view.pods import PodView

NAME: Final = "DefaultEvictor"


class DefaultEvictor:
    """Filters pods by their own properties. The service sends its evictions to the eviction API after the round.

    Args:
        args: Its arguments.
        priority_classes: Name of a PriorityClass -> its value, at start.
    """

    name = NAME

    def __init__(self, args: DefaultEvictorArgs, priority_classes: Mapping[str, int]) -> None:
        self._filter = DefaultFilter(args, priority_classes)

    def refusals(self, pod: PodView, cluster: ClusterView) -> tuple[str, ...]:
        """Return the codes of all reasons why a pod must not be evicted; empty if it may be."""
        return self._filter.refusals(pod, cluster)

    def numbers(self, pod: PodView, cluster: ClusterView) -> Inputs:
        """Return the counts and limits of the reasons that there can be against a pod, by code."""
        return self._filter.numbers(pod, cluster)

    def pre_eviction_refusals(self, pod: PodView, cluster: ClusterView) -> tuple[str, ...]:
        """Return the codes of the reasons that count just before an eviction: labels of the namespace, and node fit."""
        return self._filter.pre_eviction_refusals(pod, cluster)

    def evict(self, pod: PodView, reason: str, plugin: str, cluster: ClusterView) -> bool:
        """Return True: every eviction is accepted here, and the API server decides later.

        The attempt in the outcome of the round is the request to the API server.
        """
        del pod, reason, plugin, cluster
        return True


KIND: Final = PluginKind(
    name=NAME,
    points=frozenset({Point.EVICT, Point.FILTER}),
    decode=lambda raw: upstream_args(raw, DefaultEvictorArgs),
    check=check,
    make=lambda args, shared: DefaultEvictor(args, shared.priority_classes),
)
