"""The cross-node filters and scores for one kind of pod, and the result of a search that uses them."""

from collections.abc import Sequence
from typing import NamedTuple

from koordcore.events.pod import NodeScore, PluginExclusion

from koord_scheduler.domain.columns.label_column import LabelColumn
from koord_scheduler.domain.framework.cross_node_points import (
    CrossNodeFilter,
    CrossNodeScore,
    DomainFilter,
    DomainScore,
)


class Choice(NamedTuple):
    """The best nodes that a search found, and why the other nodes were refused.

    Attributes:
        feasible: Number of feasible nodes.
        best: Positions of the best nodes, best first.
        top: Names and scores of the best nodes, for the explanation.
        exclusions: Number of refused nodes by plugin and reason.
    """

    feasible: int
    best: list[int]
    top: list[NodeScore]
    exclusions: list[PluginExclusion]


class DomainFilters(NamedTuple):
    """Cross-node filters and scores of a subject whose results depend only on a node's value of one label.

    Attributes:
        label: The label.
        filters: (name of the plugin, filter).
        scores: (name of the plugin, score, weight).
    """

    label: LabelColumn
    filters: Sequence[tuple[str, DomainFilter]]
    scores: Sequence[tuple[str, DomainScore, int]]


class CrossNodeFilters:
    """The cross-node filters and scores for pods of one subject. They are made again when a plugin's version grows.

    Attributes:
        version: Sum of the versions of the plugins when the filters were made. Versions only grow.
        filters: (name of the plugin, filter).
        scores: (name of the plugin, score, weight).
        by_domain: The same filters and scores if all of their results depend only on a node's value of one label;
            otherwise None.
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
