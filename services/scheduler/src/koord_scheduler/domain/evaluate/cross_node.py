"""The cross-node filters and scores of one kind of pod, and the choice that an engine makes with them."""

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
    """feasible: how many nodes there were; best: rows, best first; top: what these scored."""

    feasible: int
    best: list[int]
    top: list[NodeScore]
    exclusions: list[PluginExclusion]


class DomainJudges(NamedTuple):
    """The cross-node filters and scores of a subject if all of them tell nodes apart by the values of one label."""

    label: LabelColumn
    filters: Sequence[tuple[str, DomainFilter]]
    scores: Sequence[tuple[str, DomainScore, int]]


class CrossNodeFilters:
    """The cross-node filters and scores of one subject.

    by_domain    the same judges; None: there is none, or one that looks at each node

    Args:
        version: The sum of those of the plugins, which only grow.
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

    def _by_domain(self) -> DomainJudges | None:
        filters = [(name, judge) for name, judge in self.filters if isinstance(judge, DomainFilter)]
        scores = [(name, judge, weight) for name, judge, weight in self.scores if isinstance(judge, DomainScore)]
        labels = [judge.label for _, judge in filters] + [judge.label for _, judge, _ in scores]
        if not self or len(labels) < len(self.filters) + len(self.scores):
            return None
        label = labels[0]
        if label is None or any(each is not label for each in labels):
            return None
        return DomainJudges(label, filters, scores)
