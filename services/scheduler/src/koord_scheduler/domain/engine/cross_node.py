"""The cross-node filters and scores for one kind of pod, and the choice of a node by them.

If cross-node plugins give all nodes of a topology domain the same answer, a score does not change the order within a
domain. So only the best node of each domain is compared. The work does not grow with the cluster, and the answer
equals that of examining every node (tested).

Source: scheduler-core spec, 1.2, 12.2 b
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np
from koordcore.events.pod import NodeScore, PluginExclusion

from koord_scheduler.domain.columns.label_column import LabelColumn
from koord_scheduler.domain.columns.node_columns import IntArray, Rows
from koord_scheduler.domain.engine.ranking import RING
from koord_scheduler.domain.engine.view import View
from koord_scheduler.domain.framework.cross_node_points import (
    CrossNodeFilter,
    CrossNodeScore,
    DomainFilter,
    DomainScore,
)


class Choice(NamedTuple):
    """The best nodes that a search found, and why the other nodes were refused."""

    feasible: int  # Number of feasible nodes
    best: list[int]  # Positions of the best nodes, best first
    top: list[NodeScore]  # Names and scores of the best nodes, for the explanation
    exclusions: list[PluginExclusion]  # Number of refused nodes by plugin and reason


class DomainFilters(NamedTuple):
    """Cross-node filters and scores of a subject whose results depend only on a node's value of one label."""

    label: LabelColumn
    filters: Sequence[tuple[str, DomainFilter]]  # (name of the plugin, filter)
    scores: Sequence[tuple[str, DomainScore, int]]  # (name of the plugin, score, weight)


class CrossNodeFilters:
    """The cross-node filters and scores for pods of one subject. They are made again when a plugin's version grows."""

    __slots__ = ("by_domain", "filters", "scores", "version")

    def __init__(
        self,
        version: int,
        filters: Sequence[tuple[str, CrossNodeFilter]] = (),
        scores: Sequence[tuple[str, CrossNodeScore, int]] = (),
    ) -> None:
        self.version = version  # Sum of the versions of the plugins when the filters were made. Versions only grow.
        self.filters = filters  # (name of the plugin, filter)
        self.scores = scores  # (name of the plugin, score, weight)
        # The same filters and scores if all of their results depend only on a node's value of one label; otherwise
        # None.
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


MOST_DOMAINS: Final = 32
"""With more values of the label, it is faster to examine every node."""


def best_by_domain(view: View, cross_node: DomainFilters, seed: int, count: int) -> Choice | None:
    """The `count` best nodes by comparing the best nodes of each topology domain; None if impossible: while the label's
    values or all nodes have just changed, if the label has too many values, or if a score needs all nodes. Also if a
    domain is refused and scores are normalized over the feasible nodes. Then the caller examines every node.
    """
    if len(cross_node.label.texts) > MOST_DOMAINS:
        return None
    parted = view.totals.parted(cross_node.label)
    if parted is None:
        return None
    sizes = {value: len(ranking) for value, ranking in parted.of.items() if len(ranking)}
    exclusions = list(view.exclusions())
    for name, rule in cross_node.filters:
        codes = rule.codes_by_value()
        refused: dict[int, int] = {}
        for value in list(sizes):
            code = codes.item(value)
            if code:
                refused[code] = refused.get(code, 0) + sizes.pop(value)
        if refused:
            if view.normalizes:
                return None
            reasons = {rule.reason(code): refused[code] for code in sorted(refused)}
            exclusions.append(PluginExclusion(plugin=name, excluded=sum(refused.values()), reasons=reasons))
    added = _added(cross_node, np.array(sorted(sizes), np.intp))
    if added is None:
        return None
    found: list[tuple[int, int, int, int]] = []
    places = view.nodes.name_hash
    for value in sizes:
        extra = sum([scores.item(value) for _, scores in added])
        for row in parted.of[value].best(seed, count):
            place = (places.item(row) - seed) & RING
            found.append((-(view.totals.of(row) + extra), place, row, value))
    found = sorted(found)[:count]
    best = [row for _, _, row, _ in found]
    if not added:
        return Choice(sum(sizes.values()), best, view.scored(best), exclusions)
    top: list[NodeScore] = []
    for scored, (total, _, _, value) in zip(view.scored(best), found, strict=True):
        own = {name: scores.item(value) for name, scores in added}
        top.append(NodeScore(scored.node, -total, {**scored.parts, **own}))
    return Choice(sum(sizes.values()), best, top, exclusions)


def _added(cross_node: DomainFilters, present: Rows) -> list[tuple[str, IntArray]] | None:
    """Return the scores that each plugin adds per label value, or None if a plugin scores each node by itself."""
    added: list[tuple[str, IntArray]] = []
    for name, rule, weight in cross_node.scores if len(present) else ():
        scores = rule.scores_by_value(present)
        if scores is None:
            return None
        added.append((name, weight * scores))
    return added
