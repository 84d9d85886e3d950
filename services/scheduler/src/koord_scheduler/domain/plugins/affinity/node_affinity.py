"""NodeAffinity: node selector and required affinity refuse nodes, preferred affinity scores them. A requirement is
evaluated once per distinct value of its label instead of once per node. NodeName: if the pod names a node, refuses all
other nodes.

Source: scheduler-core spec, 5.5
"""

from collections.abc import Callable
from typing import Final

import numpy as np
from koordcore.protocol.objects import LabelSelectorRequirement, NodeSelectorTerm
from koordcore.protocol.objects import NodeAffinity as NodeAffinityOfPod
from koordcore.protocol.placement import NAME_FIELD, is_met, term_matches_one
from numpy.typing import NDArray

from koord_scheduler.domain.cluster.equivalence_classes import PodClass
from koord_scheduler.domain.columns.node_columns import BoolArray, IntArray, NodeColumns, Rows, row_list
from koord_scheduler.domain.framework.extension_points import (
    FILTER,
    NODE_SELECTOR_FILTER,
    ROW_FILTER,
    ROW_SCORE,
    SCORE,
    TOLERATION_FILTER,
)
from koord_scheduler.domain.framework.node_points import Reads, RowFunction

REFUSED: Final = 1
"""The only code of the filter other than 0."""


def _met_by_label(requirement: LabelSelectorRequirement, nodes: NodeColumns, rows: Rows) -> BoolArray:
    column = nodes.label(requirement.key)
    return _by_value(column.values[rows], lambda value: is_met(requirement, column.texts[value]))


def _by_value(values: NDArray[np.int32], function: Callable[[int], bool]) -> BoolArray:
    distinct, where = np.unique(values, return_inverse=True)
    return np.fromiter((function(int(value)) for value in distinct), np.bool_, len(distinct))[where]


def _met_by_field(requirement: LabelSelectorRequirement, nodes: NodeColumns, rows: Rows) -> BoolArray:
    if requirement.key != NAME_FIELD:
        return np.zeros(len(rows), np.bool_)
    # The rows may include free ones, which have no name. They meet NotIn, and are masked by the caller.
    if requirement.operator in ("In", "NotIn"):
        named = [row for name in requirement.values if (row := nodes.row(name)) is not None]
        return np.isin(rows, named, invert=requirement.operator == "NotIn")
    names = nodes.names
    found = (row < len(names) and is_met(requirement, names[row]) for row in row_list(rows))
    return np.fromiter(found, np.bool_, len(rows))


def term_matches(term: NodeSelectorTerm, nodes: NodeColumns, rows: Rows) -> BoolArray:
    """Return for each node at `rows` whether it meets every expression of the term, bool (K,). An empty term matches
    none.
    """
    if not term.match_expressions and not term.match_fields:
        return np.zeros(len(rows), np.bool_)
    matches = np.ones(len(rows), np.bool_)
    for requirement in term.match_fields:
        matches &= _met_by_field(requirement, nodes, rows)
    for requirement in term.match_expressions:
        matches &= _met_by_label(requirement, nodes, rows)
    return matches


class NodeAffinity:
    """The plugin NodeAffinity: filters by nodeSelector and required affinity, and scores by preferred affinity.
    `added`: Affinity that applies to every pod besides its own (NodeAffinityArgs.addedAffinity).
    """

    name = "NodeAffinity"
    extension_points = (FILTER, ROW_FILTER, NODE_SELECTOR_FILTER, SCORE, ROW_SCORE)
    refused = REFUSED
    reads = Reads.SHAPE
    normalizes = True

    def __init__(self, added: NodeAffinityOfPod | None = None) -> None:
        self._added = added

    def filter(self, pod: PodClass, nodes: NodeColumns, rows: Rows) -> IntArray | None:
        required = [each.required for each in (pod.node_affinity, self._added) if each is not None and each.required]
        if not pod.node_selector and not required:
            return None
        matches = np.ones(len(rows), np.bool_)
        for key, value in pod.node_selector.items():
            matches &= _met_by_label(LabelSelectorRequirement(key=key, operator="In", values=[value]), nodes, rows)
        for selector in required:
            any_term = np.zeros(len(rows), np.bool_)
            for term in selector.node_selector_terms:
                any_term |= term_matches(term, nodes, rows)
            matches &= any_term
        return (~matches).astype(np.int64)

    def row_filter(self, pod: PodClass, nodes: NodeColumns) -> RowFunction | None:
        selector = pod.node_selector
        required = [each.required for each in (pod.node_affinity, self._added) if each is not None and each.required]

        def code(row: int) -> int:
            labels, name = nodes.shape_of(row).labels, nodes.names[row]
            if selector and any(labels.get(key) != value for key, value in selector.items()):
                return REFUSED
            for each in required:
                if not any(term_matches_one(term, labels, name) for term in each.node_selector_terms):
                    return REFUSED
            return 0

        return code if selector or required else None

    def unresolvable(self, pod: PodClass, nodes: NodeColumns, rows: Rows) -> BoolArray:
        """Return True for all nodes: preemption cannot help, because it does not change labels or names of nodes."""
        return np.ones(len(rows), np.bool_)

    def reasons(self, pod: PodClass, nodes: NodeColumns, code: int) -> tuple[str, ...]:
        return ("node(s) didn't match Pod's node affinity/selector",)

    def score(self, pod: PodClass, nodes: NodeColumns, rows: Rows) -> IntArray | None:
        """Return the sum of the weights of the preferred terms that match. None if the class prefers nothing."""
        wishes = [wish for each in (pod.node_affinity, self._added) if each is not None for wish in each.preferred]
        if not wishes:
            return None
        raw = np.zeros(len(rows), np.int64)
        for preferred in wishes:
            raw += term_matches(preferred.preference, nodes, rows) * np.int64(preferred.weight)
        return raw

    def row_score(self, pod: PodClass, nodes: NodeColumns) -> RowFunction | None:
        wishes = [wish for each in (pod.node_affinity, self._added) if each is not None for wish in each.preferred]

        def score(row: int) -> int:
            labels, name = nodes.shape_of(row).labels, nodes.names[row]
            return sum(wish.weight for wish in wishes if term_matches_one(wish.preference, labels, name))

        return score if wishes else None

    def normalize(self, raw: IntArray, low: int, high: int) -> IntArray:
        if high <= 0:
            return np.zeros_like(raw)
        return 100 * raw // high


class NodeName:
    """The plugin NodeName: if the pod's spec names a node, refuses all other nodes."""

    name = "NodeName"
    extension_points = (FILTER, TOLERATION_FILTER)
    reads = Reads.SHAPE
    by_tolerations = True

    def filter(self, pod: PodClass, nodes: NodeColumns, rows: Rows) -> IntArray | None:
        """Refuse all nodes but the one that `spec.nodeName` names. None if the pod names no node."""
        if not pod.node_name:
            return None
        row = nodes.row(pod.node_name)
        return (rows != (-1 if row is None else row)).astype(np.int64)

    def unresolvable(self, pod: PodClass, nodes: NodeColumns, rows: Rows) -> BoolArray:
        """Return True for all nodes: preemption cannot help, because it does not change the name of a node."""
        return np.ones(len(rows), np.bool_)

    def reasons(self, pod: PodClass, nodes: NodeColumns, code: int) -> tuple[str, ...]:
        return ("node(s) didn't match the requested node name",)
