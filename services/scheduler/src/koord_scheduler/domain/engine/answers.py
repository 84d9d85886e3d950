"""Calls the filters and scores of a profile for some nodes. Results that depend on the nodes' shape are cached.

A filter status is one number per node (`row`: position in the node columns): -1 if there is no node at this position,
0 if it is feasible, otherwise (index of the refusing plugin + 1) << 48 | its code.
"""

from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

import numpy as np
from koordcore.events.pod import PluginExclusion

from koord_scheduler.domain.cluster.equivalence_classes import PodClass
from koord_scheduler.domain.columns.node_columns import IntArray, NodeColumns, Rows, row_list
from koord_scheduler.domain.engine.asked import AskedPlugins
from koord_scheduler.domain.framework.node_points import FilterPlugin, Reads
from koord_scheduler.domain.framework.profile import Profile

NO_NODE: Final = -1
FEASIBLE: Final = 0
CODE_BITS: Final = 48
CODE_MASK: Final = (1 << CODE_BITS) - 1


class Refusals(NamedTuple):
    """The nodes that one plugin refuses for one reason."""

    plugin: str
    reason: str  # Phrase for users
    rows: Rows  # Positions of the nodes, ascending, shape (K,)
    is_resolvable: bool  # Whether the nodes may become feasible if pods leave them


def refused_by(index: int, codes: IntArray, statuses: IntArray) -> IntArray:
    """A feasible node that this filter refuses gets its status. `codes`: 0 passes. All arrays are int64 (K,)."""
    return np.where((statuses == FEASIBLE) & (codes != 0), codes | ((index + 1) << CODE_BITS), statuses)


def refusals_of(
    statuses: IntArray, filters: Sequence[FilterPlugin], pod: PodClass, nodes: NodeColumns
) -> list[Refusals]:
    """The refused nodes by plugin and reason. `statuses`: of every position, int64 (N,)."""
    found: list[Refusals] = []
    for status in row_list(np.unique(statuses[statuses > FEASIBLE])):
        plugin = filters[(status >> CODE_BITS) - 1]
        reason = ", ".join(plugin.reasons(pod, nodes, status & CODE_MASK))
        rows = np.flatnonzero(statuses == status)
        never = plugin.unresolvable(pod, nodes, rows)
        found += [
            Refusals(plugin.name, reason, part, resolvable)
            for part, resolvable in ((rows[~never], True), (rows[never], False))
            if len(part)
        ]
    return found


def explained(
    counts: Mapping[int, int], filters: Sequence[FilterPlugin], pod: PodClass, nodes: NodeColumns
) -> list[PluginExclusion]:
    """In filter order; a filter that refused no node has no entry. `counts`: filter status -> number of nodes."""
    excluded = [0] * len(filters)
    reasons: list[dict[str, int]] = [{} for _ in filters]
    for status in sorted(counts):
        count = counts[status]
        if status <= FEASIBLE or count == 0:
            continue
        index = (status >> CODE_BITS) - 1
        excluded[index] += count
        for reason in filters[index].reasons(pod, nodes, status & CODE_MASK):
            reasons[index][reason] = reasons[index].get(reason, 0) + count
    return [
        PluginExclusion(plugin=plugin.name, excluded=excluded[index], reasons=reasons[index])
        for index, plugin in enumerate(filters)
        if excluded[index]
    ]


def merged(exclusions: Iterable[PluginExclusion]) -> list[PluginExclusion]:
    """Return one exclusion per plugin, in the order of their first occurrence. The numbers of nodes of entries with the
    same plugin are summed, in total and for each reason.
    """
    excluded: dict[str, int] = {}
    reasons: dict[str, dict[str, int]] = {}
    for each in exclusions:
        excluded[each.plugin] = excluded.get(each.plugin, 0) + each.excluded
        known = reasons.setdefault(each.plugin, {})
        for reason, count in each.reasons.items():
            known[reason] = known.get(reason, 0) + count
    return [PluginExclusion(plugin=plugin, excluded=excluded[plugin], reasons=reasons[plugin]) for plugin in excluded]


MOST_KEPT: Final = 256
"""Maximum number of cached classes of pods: by what they ask of the shape of nodes, and by everything that they ask."""


class RowAnswers:
    """Filter and score results of some plugins for all nodes, as cached arrays.

    Attributes:
        position: Position in the journal of changed nodes up to which the results are current.
        status: Filter status of each node, int64 (N,): -1 no node, 0 feasible, otherwise who refuses it.
        raw: For each score of the profile: raw scores, int64 (N,); None if all are 0.
        status_at, raw_at: The same memory for single elements, which is faster.
    """

    __slots__ = ("position", "raw", "raw_at", "status", "status_at")

    def __init__(self, capacity: int, scores: int) -> None:
        self.position = 0
        self.status: IntArray = np.full(capacity, NO_NODE, np.int64)
        self.status_at = self.status.data
        self.raw: list[IntArray | None] = [None] * scores
        self.raw_at: list[memoryview | None] = [None] * scores

    def store_raw(self, index: int, rows: Rows, values: IntArray | None) -> None:
        """`values`: raw scores, int64 (K,); None if all are 0."""
        raw = self.raw[index]
        if raw is None:
            if values is None:
                return
            raw = self.raw[index] = np.zeros(len(self.status), np.int64)
            self.raw_at[index] = raw.data
        raw[rows] = 0 if values is None else values


class Answers:
    """Calls the filters and scores of one profile, and caches the results that depend on the shape of nodes alone.
    `keep`: whether results are cached between cycles.
    """

    def __init__(self, nodes: NodeColumns, profile: Profile, *, keep: bool = True) -> None:
        self._keep = keep
        self.nodes = nodes
        self.profile = profile
        self.asked = AskedPlugins(profile)  # Which filters and scores apply to each class of pods
        self._shapes: OrderedDict[bytes, RowAnswers] = OrderedDict()

    def passing(self, pod: PodClass, rows: Rows) -> Rows:
        """The positions of the nodes at `rows` that pass every filter for the class. The result is not cached."""
        nodes = self.nodes
        rows = rows[nodes.alive[rows]]
        for _, plugin in self.asked.of(pod).filters:
            if len(rows) == 0:
                return rows
            codes = plugin.filter(pod, nodes, rows)
            if codes is not None:
                rows = rows[codes == 0]
        return rows

    def passes(self, pod: PodClass, row: int) -> bool:
        """Whether the node passes every filter now. Pods that are on the node on trial count."""
        if pod.shape_key not in self._shapes:
            return len(self.passing(pod, np.array([row], np.intp))) > 0
        if not self.suits(pod, row):
            return False
        asked = self.asked.of(pod)
        for single in asked.row_filters:
            function = single.row_filter(pod, self.nodes)
            if function is not None and function(row):
                return False
        for plugin in asked.other_filters:
            codes = plugin.filter(pod, self.nodes, np.array([row], np.intp))
            if codes is not None and codes[0]:
                return False
        return True

    def suits(self, pod: PodClass, row: int) -> bool:
        """Return whether the node at position `row` passes the filters that read only its labels, taints and flags."""
        return self.shape_of(pod).status.item(row) == FEASIBLE

    def shape_of(self, pod: PodClass) -> RowAnswers:
        """Return the results of the plugins that read only labels, taints and flags, after updating changed nodes."""
        answers = self._shapes.get(pod.shape_key) if self._keep else None
        if answers is None or len(answers.status) != self.nodes.capacity:
            answers = self._shapes[pod.shape_key] = RowAnswers(self.nodes.capacity, len(self.profile.scores))
            changed = None
            if len(self._shapes) > MOST_KEPT:
                self._shapes.popitem(last=False)
        else:
            self._shapes.move_to_end(pod.shape_key)
            if answers.position == self.nodes.shape.position:
                return answers
            changed = self.nodes.shape.since(answers.position)
        rows = all_rows(self.nodes) if changed is None else np.array(sorted(changed), np.intp)
        answers.status[rows] = np.where(self.nodes.alive[rows], FEASIBLE, NO_NODE)
        self.ask(Reads.SHAPE, pod, rows, answers)
        answers.position = self.nodes.shape.position
        return answers

    def ask(self, reads: Reads, pod: PodClass, rows: Rows, into: RowAnswers) -> None:
        """Call the plugins that read the shape of nodes, or those that read their load. The filter status of a node
        names the first plugin that refuses it.
        """
        filters, scores = self.asked.of(pod).by_reads[reads]
        nodes = self.nodes
        for index, plugin in filters:
            codes = plugin.filter(pod, nodes, rows)
            if codes is not None:
                into.status[rows] = refused_by(index, codes, into.status[rows])
        for index, scorer in scores:
            into.store_raw(index, rows, scorer.score(pod, nodes, rows))


def all_rows(nodes: NodeColumns) -> Rows:
    """Return every node position that is in use or was in use before its node was deleted."""
    return np.arange(len(nodes.names), dtype=np.intp)
