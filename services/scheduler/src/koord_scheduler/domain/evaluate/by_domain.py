"""Chooses a node if cross-node plugins give all nodes of a topology domain the same answer.

The nodes of each domain are ranked by their totals already (`views`, `ranking`). A cross-node score does not change
the order within a domain, so only the best nodes of each domain are compared. The work does not grow with the
cluster, and the answer equals that of examining every node (tested).

Source:
    scheduler-core spec, 1.2, 12.2 b
"""

from typing import Final

import numpy as np
from koordcore.events.pod import NodeScore, PluginExclusion

from koord_scheduler.domain.columns.node_columns import IntArray, Rows
from koord_scheduler.domain.evaluate.cross_node import Choice, DomainFilters
from koord_scheduler.domain.evaluate.ranking import RING
from koord_scheduler.domain.evaluate.views.view import View

MOST_DOMAINS: Final = 32
"""With more values of the label, it is faster to examine every node."""


def best_by_domain(view: View, cross_node: DomainFilters, seed: int, count: int) -> Choice | None:
    """Return the `count` best nodes by comparing the best nodes of each topology domain; None if impossible.

    It is impossible while the label's values or all nodes have just changed, if the label has too many values, or if a
    score needs all nodes. It is also impossible if a domain is refused and scores are normalized over the feasible
    nodes. Then the caller examines every node.

    Args:
        view: Filter and score results of the pod's class.
        cross_node: Filters and scores that give all nodes of a domain the same result.
        seed: Hash of the pod, 64 bits, which decides among equal totals (`ranking`).
        count: Number of nodes to return.
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
