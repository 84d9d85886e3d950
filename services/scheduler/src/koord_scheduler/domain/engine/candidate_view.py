"""Evaluates only the few candidate nodes of a pod, and counts the refusals of all others.

A pod of a DaemonSet, for example, can only run on one node. A view over all nodes for each such pod would be slow.
Indexes find the candidates instead (`candidates`). NodeAffinity refuses all other nodes, except those that an earlier
filter refuses. The number of the latter is the same for all pods with the same tolerations and is cached (`_Earlier`).
The result, including the explanation, equals that of a view (tested).

Source: scheduler-core spec, 12.2 a
"""

from collections import OrderedDict
from collections.abc import Sequence
from typing import Final, NamedTuple, cast

import numpy as np
from koordcore.events.pod import NodeScore, PluginExclusion
from koordcore.values import codec

from koord_scheduler.domain.cluster.equivalence_classes import PodClass
from koord_scheduler.domain.columns.node_columns import IntArray, NodeColumns, Rows, row_list
from koord_scheduler.domain.engine.answers import (
    CODE_BITS,
    FEASIBLE,
    NO_NODE,
    Refusals,
    all_rows,
    explained,
    refusals_of,
    refused_by,
)
from koord_scheduler.domain.engine.asked import AskedPlugins, row_filter_of, row_score_of
from koord_scheduler.domain.engine.candidates import MOST_CANDIDATES, Candidates, FreeIndex
from koord_scheduler.domain.engine.ranking import RING
from koord_scheduler.domain.framework.extension_points import (
    AMOUNTS_FILTER,
    CONCERNS,
    NODE_SELECTOR_FILTER,
    TOLERATION_FILTER,
)
from koord_scheduler.domain.framework.node_points import (
    FilterPlugin,
    NodeSelectorFilterPlugin,
    RowFilterPlugin,
    RowScorePlugin,
)
from koord_scheduler.domain.framework.plugin import declares
from koord_scheduler.domain.framework.profile import Profile

_KEPT: Final = 64


class _Earlier:
    """The answers of the filters before NodeAffinity about every node, for all pods with the same tolerations."""

    def __init__(self, nodes: NodeColumns, filters: Sequence[FilterPlugin], pod: PodClass) -> None:
        self._nodes = nodes
        self._filters = filters
        self._pod = pod
        self._position = -1
        self.status: IntArray = np.zeros(0, np.int64)  # Filter status of each row, int64 (N,), see `answers`
        self.counts: dict[int, int] = {}  # Filter status -> number of rows
        # Number of candidates, all of them feasible -> the exclusions of all other nodes.
        self.told: dict[int, list[PluginExclusion]] = {}

    def refresh(self) -> None:
        nodes = self._nodes
        if self._position == nodes.shape.position and len(self.status) == nodes.capacity:
            return
        changed = nodes.shape.since(self._position) if len(self.status) == nodes.capacity else None
        self._position = nodes.shape.position
        self.told.clear()
        if changed is None or 4 * len(changed) > len(nodes):
            self.status = np.full(nodes.capacity, NO_NODE, np.int64)
            rows = all_rows(nodes)
            self.status[rows] = self._evaluated(rows)
            values, counts = np.unique(self.status, return_counts=True)
            self.counts = dict(zip(row_list(values), row_list(counts), strict=True))
            return
        rows = np.array(sorted(changed), np.intp)
        after = self._evaluated(rows)
        for old, new in zip(row_list(self.status[rows]), row_list(after), strict=True):
            self.counts[old] = self.counts.get(old, 0) - 1
            self.counts[new] = self.counts.get(new, 0) + 1
        self.status[rows] = after

    def _evaluated(self, rows: Rows) -> IntArray:
        status = np.where(self._nodes.alive[rows], FEASIBLE, NO_NODE)
        for index, plugin in enumerate(self._filters):
            codes = plugin.filter(self._pod, self._nodes, rows)
            if codes is not None:
                status = refused_by(index, codes, status)
        return status


class _Later(NamedTuple):
    """The plugins that are asked about the candidates of a class of pods."""

    filters: list[tuple[int, FilterPlugin]]  # Filters from NodeSelectorFilter on, with their places in the profile
    # The same filters, for one row; None if one of them needs arrays.
    row_filters: list[tuple[int, RowFilterPlugin]] | None
    scores: frozenset[int]  # Places of the scores that are asked
    # Each score of the profile, for one row; None if it needs arrays or is not asked.
    row_scores: list[RowScorePlugin | None]


class CandidateViews:
    """Makes views of few candidate nodes, for pods whose selector or affinity allows only these. One per profile."""

    def __init__(self, nodes: NodeColumns, profile: Profile, asked: AskedPlugins) -> None:
        self.nodes = nodes
        self.filters = profile.filters
        self.scores = profile.scores
        self.asked = asked
        zero = np.zeros(1, np.int64)
        self.scores_of_zero = [int(plugin.normalize(zero, 0, 0)[0]) for plugin, _ in profile.scores]
        self.affinity, self.refused = _place_of_selector(profile.filters)
        self._candidates = Candidates(nodes)
        self._fit = profile.plugins.one_at(AMOUNTS_FILTER)
        self._free = FreeIndex(nodes)
        self._earlier: OrderedDict[bytes, _Earlier] = OrderedDict()
        self._later: dict[int, _Later] = {}

    def of(self, pod: PodClass) -> "CandidateView | None":
        """Return a new view of a pod class over its candidate nodes, or None if a view of all nodes is needed. It is
        needed if there are too many candidates, no index finds them, or the pod's spec names its node.
        """
        if self.affinity is None or pod.node_name:
            return None
        rows = self._candidates.of(pod)
        return None if rows is None else CandidateView(self, pod, rows, self._earlier_of(pod))

    def has_few(self, pod: PodClass) -> bool:
        """Return whether the pod can run on so few nodes that `of` returns a view of them."""
        if self.affinity is None or pod.node_name or not (pod.node_selector or pod.node_affinity):
            return False
        return self._candidates.of(pod) is not None

    def later_of(self, pod: PodClass) -> _Later:
        """Return the plugins that are called for each candidate node of a class of pods. These are the scores, and the
        filters from NodeAffinity on. The filters before it read only tolerations; their results for all nodes are
        shared (`_Earlier`).
        """
        later = self._later.get(pod.concerned)
        if later is None:
            asked = self.asked.of(pod)
            filters = [each for each in asked.filters if self.affinity is not None and each[0] >= self.affinity]
            row_filters = [(index, found) for index, each in filters if (found := row_filter_of(each)) is not None]
            later = self._later[pod.concerned] = _Later(
                filters,
                row_filters if len(row_filters) == len(filters) else None,
                frozenset(asked.scores),
                [row_score_of(each) if index in asked.scores else None for index, (each, _) in enumerate(self.scores)],
            )
        return later

    def with_room(self, pod: PodClass) -> Rows | None:
        """Return the positions of all nodes whose free amounts may suffice for the pod, if they are few. None if there
        are too many, if no filter compares requests, or if it compares none of the pod's requests.
        """
        if self._fit is None:
            return None
        checked = [(column, amount) for _, column, amount in self._fit.checks_of(pod, self.nodes)]
        rows = self._free.rows(checked, MOST_CANDIDATES) if checked else None
        return None if rows is None else np.array(rows, np.intp)

    def _earlier_of(self, pod: PodClass) -> _Earlier:
        key = codec.encode(pod.tolerations) if pod.tolerations else b""
        earlier = self._earlier.get(key)
        if earlier is None:
            earlier = self._earlier[key] = _Earlier(self.nodes, self.filters[: self.affinity], pod)
            if len(self._earlier) > _KEPT:
                self._earlier.popitem(last=False)
        earlier.refresh()
        return earlier


def _place_of_selector(filters: Sequence[FilterPlugin]) -> tuple[int | None, int]:
    """Return the place of the filter by node selector, and its code. The place is None if there is no such filter, or
    if a filter before it reads more than tolerations.
    """
    for index, plugin in enumerate(filters):
        if declares(plugin, NODE_SELECTOR_FILTER):
            return index, cast("NodeSelectorFilterPlugin", plugin).refused
        if not declares(plugin, TOLERATION_FILTER) or declares(plugin, CONCERNS):
            break
    return None, 0


class CandidateView:
    """Filter and score results of the few candidate nodes of one class of pods, in the form of a `View`."""

    def __init__(self, views: CandidateViews, pod: PodClass, rows: list[int], earlier: _Earlier) -> None:
        self._views = views
        self._pod = pod
        self._rows = rows
        self._earlier = earlier
        self._later = views.later_of(pod)
        self._statuses = self._evaluated(rows) if self._later.row_filters is None else self._statuses_by_row(rows)
        self._feasible = [row for row, status in zip(rows, self._statuses, strict=True) if status == FEASIBLE]
        self._parts: dict[int, dict[str, int]] = {}

    @property
    def feasible(self) -> int:
        return len(self._feasible)

    def feasible_rows(self) -> Rows:
        return np.array(self._feasible, np.intp)

    def exclusions(self) -> list[PluginExclusion]:
        """Return how many nodes each plugin refused and why, candidates or not. See `View.exclusions`."""
        if len(self._feasible) < len(self._rows):
            return self._told()
        told = self._earlier.told.get(len(self._rows))
        if told is None:
            told = self._earlier.told[len(self._rows)] = self._told()
        return told

    def best(self, count: int, seed: int) -> list[int]:
        """See `View.best`."""
        if len(self._feasible) == 1:
            self._weigh_one(self._feasible[0])
            return self._feasible[:]
        totals = dict(zip(self._feasible, self._weigh(self._feasible), strict=True))
        place = self._views.nodes.name_hash
        order = sorted(self._feasible, key=lambda row: (-totals[row], (place.item(row) - seed) & RING))
        return order[:count]

    def scored(self, rows: list[int]) -> list[NodeScore]:
        """Return name, total and scores per plugin of nodes at these positions. Call `best` or `totals_among` with
        these nodes before.
        """
        names = self._views.nodes.names
        return [NodeScore(names[row], sum(part.values()), part) for row in rows for part in self.parts([row])]

    def totals_among(self, rows: Rows) -> tuple[IntArray, list[tuple[int, int]]]:
        """Return (total scores of these feasible nodes, normalized over these alone, int64 (K,); an empty list). The
        list stands for the ranges of raw scores, which `View.totals_among` returns for `parts`.
        """
        totals = [self._weigh_one(rows.item(0))] if len(rows) == 1 else self._weigh(row_list(rows))
        return np.array(totals, np.int64), []

    def parts(self, rows: list[int], _bounds: list[tuple[int, int]] | None = None) -> list[dict[str, int]]:
        """Return for each node: plugin -> weighted score. Call `best` or `totals_among` with these nodes before."""
        return [dict(self._parts[row]) for row in rows]

    def resolvable(self) -> Rows:
        """Return the positions of refused candidates for which preemption might help. It never helps other nodes."""
        found: list[int] = []
        for row, status in zip(self._rows, self._statuses, strict=True):
            if status > FEASIBLE:
                plugin = self._views.filters[(status >> CODE_BITS) - 1]
                if not plugin.unresolvable(self._pod, self._views.nodes, np.array([row], np.intp))[0]:
                    found.append(row)
        return np.array(found, np.intp)

    def refusals(self) -> list[Refusals]:
        """Return all refused nodes, candidates or not, by plugin and reason. See `View.refusals`."""
        statuses = np.where(self._earlier.status == FEASIBLE, self._refused_by_affinity(), self._earlier.status)
        statuses[self._rows] = self._statuses
        return refusals_of(statuses, self._views.filters, self._pod, self._views.nodes)

    def _told(self) -> list[PluginExclusion]:
        """Return the exclusions of all refused nodes, candidates or not."""
        counts = dict(self._earlier.counts)
        for row, status in zip(self._rows, self._statuses, strict=True):
            counts[self._earlier.status.item(row)] -= 1
            if status != FEASIBLE:
                counts[status] = counts.get(status, 0) + 1
        refused = self._refused_by_affinity()
        counts[refused] = counts.get(refused, 0) + counts.pop(FEASIBLE, 0)
        return explained(counts, self._views.filters, self._pod, self._views.nodes)

    def _refused_by_affinity(self) -> int:
        assert self._views.affinity is not None, "a view of candidates needs the NodeAffinity filter"
        return self._views.refused | (self._views.affinity + 1) << CODE_BITS

    def _statuses_by_row(self, rows: list[int]) -> list[int]:
        """Return the statuses of all candidates, evaluated row by row."""
        pod, nodes, row_filters = self._pod, self._views.nodes, self._later.row_filters or []
        statuses: list[int] = []
        for row in rows:
            status = self._earlier.status.item(row)
            if status == FEASIBLE:
                for index, plugin in row_filters:
                    function = plugin.row_filter(pod, nodes)
                    code = 0 if function is None else function(row)
                    if code:
                        status = code | (index + 1) << CODE_BITS
                        break
            statuses.append(status)
        return statuses

    def _evaluated(self, rows: list[int]) -> list[int]:
        """Return the statuses of all candidates, evaluated with arrays."""
        statuses = self._earlier.status[rows]
        for index, plugin in self._later.filters:
            codes = plugin.filter(self._pod, self._views.nodes, np.array(rows, np.intp))
            if codes is not None:
                statuses = refused_by(index, codes, statuses)
        return row_list(statuses)

    def _weigh(self, rows: list[int]) -> list[int]:
        """Return the totals of some feasible rows, normalized over these alone, and keep their parts."""
        parts: list[dict[str, int]] = [{} for _ in rows]
        for index, (plugin, weight) in enumerate(self._views.scores):
            if index not in self._later.scores:
                continue
            for part, score in zip(parts, self._scores(index, rows), strict=True):
                part[plugin.name] = weight * score
        self._parts = dict(zip(rows, parts, strict=True))
        return [sum(part.values()) for part in parts]

    def _weigh_one(self, row: int) -> int:
        """Return the total score of one node, without arrays."""
        views, pod, nodes, row_scores = self._views, self._pod, self._views.nodes, self._later.row_scores
        parts: dict[str, int] = {}
        for index, (plugin, weight) in enumerate(views.scores):
            if index not in self._later.scores:
                continue
            single = row_scores[index]
            if single is None or plugin.normalizes:
                score = self._scores(index, [row])[0]
            else:
                function = single.row_score(pod, nodes)
                score = (0 if function is None else function(row)) or views.scores_of_zero[index]
            parts[plugin.name] = weight * score
        self._parts = {row: parts}
        return sum(parts.values())

    def _scores(self, index: int, rows: list[int]) -> list[int]:
        views = self._views
        plugin, _ = views.scores[index]
        single = self._later.row_scores[index]
        if index not in self._later.scores:
            raw: list[int] = []
        elif single is not None:
            function = single.row_score(self._pod, views.nodes)
            raw = [] if function is None else [function(row) for row in rows]
        else:
            found = plugin.score(self._pod, views.nodes, np.array(rows, np.intp))
            raw = [] if found is None else row_list(found)
        if not any(raw):
            return [views.scores_of_zero[index]] * len(rows)
        return row_list(plugin.normalize(np.array(raw, np.int64), min(raw), max(raw))) if plugin.normalizes else raw
