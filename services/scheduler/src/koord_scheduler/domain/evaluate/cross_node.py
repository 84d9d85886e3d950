"""The cross-node filters and scores of one kind of pod, and the choice that the engine makes with them."""

from collections.abc import Sequence
from typing import NamedTuple

from koordcore.events.scheduling.placement_explanation import NodeScore, PluginExclusion

from koord_scheduler.domain.columns.node_columns import LabelColumn
from koord_scheduler.domain.framework.cross_node_points import (
    CrossNodeFilter,
    CrossNodeScore,
    DomainFilter,
    DomainScore,
)


class Choice(NamedTuple):
    """The result of a search for the best nodes.

    Attributes:
        feasible: Number of feasible nodes.
        best: The best rows, best first.
        top: Their scores.
        exclusions: The refused nodes by plugin and reason.
    """

    feasible: int
    best: list[int]
    top: list[NodeScore]
    exclusions: list[PluginExclusion]


class DomainFilters(NamedTuple):
    """The cross-node filters and scores of a subject if all of them tell nodes apart by the values of one label.

    Attributes:
        label: The label.
        filters: Name of the plugin, and filter.
        scores: Name of the plugin, score, and its weight.
    """

    label: LabelColumn
    filters: Sequence[tuple[str, DomainFilter]]
    scores: Sequence[tuple[str, DomainScore, int]]


class CrossNodeFilters:
    """The cross-node filters and scores of one subject.

    Attributes:
        version: Sum of the versions of the plugins when the filters were made. Versions only grow.
        filters: Name of the plugin, and filter.
        scores: Name of the plugin, score, and its weight.
        by_domain: The same plugins if all of them tell nodes apart by the values of one label; otherwise None.
    """

    __slots__ = ("by_domain", "filters", "scores", "version")

    def __init__(
        self,
        version: int,
        filters: Sequence[tuple[str, CrossNodeFilter]] = (),
        scores: Sequence[tuple[str, CrossNodeScore, int]] = (),
    ) -> None:
        self.version = version
        self.filters = filters
        self.scores = scores
        self.by_domain = self._by_domain()

    def __bool__(self) -> bool:
        return bool(self.filters or self.scores)

    def _by_domain(self) -> DomainFilters | None:
        filters = [(name, rule) for name, rule in self.filters if isinstance(rule, DomainFilter)]
        scores = [(name, rule, weight) for name, rule, weight in self.scores if isinstance(rule, DomainScore)]
        labels = [rule.label for _, rule in filters] + [rule.label for _, rule, _ in scores]
        if not self or len(labels) < len(self.filters) + len(self.scores):
            return None
        label = labels[0]
        if label is None or any(each is not label for each in labels):
            return None
        return DomainFilters(label, filters, scores)
