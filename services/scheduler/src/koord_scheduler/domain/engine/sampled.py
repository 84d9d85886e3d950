"""Examines some of the nodes until enough are feasible. The pod and the log position decide where the search starts.

All other searches examine every node. This one accepts a good node instead of the best one where a search is
expensive: for many different pods on very many nodes. It is off unless a profile sets `percentageOfNodesToScore` or
random relaxation is on. Its cost is measured in `tests/bench/measure_relaxation.py`.

Source: scheduler-core spec, 1.1, 12.2 c
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
from koordcore.events.pod import PluginExclusion

from koord_scheduler.domain.cluster.equivalence_classes import PodClass
from koord_scheduler.domain.columns.node_columns import IntArray, NodeColumns, Rows, row_list
from koord_scheduler.domain.engine.answers import FEASIBLE, explained, refused_by
from koord_scheduler.domain.engine.asked import Asked
from koord_scheduler.domain.framework.profile import Profile

MIN_FEASIBLE_NODES: Final = 100
"""Smaller clusters are examined completely, larger ones until at least this many feasible nodes are found."""
_MIN_ADAPTIVE_PERCENT: Final = 5


PATIENCE: Final = 50
"""Random relaxation stops after this many consecutive feasible nodes that were no better than the best one before."""
_FIRST_CHUNK: Final = 128
"""Number of nodes that are examined first. Each further step examines twice as many."""


def feasible_nodes_to_find(nodes: int, percentage_of_nodes_to_score: int) -> int:
    """After how many feasible nodes the search stops.

        fewer than 100 nodes: all;  else max(100, N * p // 100), p as configured; if that is 0: max(5, 50 - N // 125)

    N (`nodes`) are those that PreFilter leaves; p is 0..100. Source: vectors scheduler/node_sampling.
    """
    if nodes < MIN_FEASIBLE_NODES:
        return nodes
    percent = percentage_of_nodes_to_score or max(_MIN_ADAPTIVE_PERCENT, 50 - nodes // 125)
    return min(nodes, max(MIN_FEASIBLE_NODES, nodes * percent // 100))


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampling:
    """After how many feasible nodes a search stops."""

    # As configured, 0..100. 0: an adaptive number with random relaxation, otherwise all nodes.
    percentage_of_nodes_to_score: int
    random_relaxation: bool  # Whether the search also stops when no better nodes turn up

    def wanted(self, nodes: int) -> int:
        """Return the number of feasible nodes at which the search stops, out of `nodes` candidates. If the result is
        `nodes`, all candidates are examined.
        """
        if not self.percentage_of_nodes_to_score and not self.random_relaxation:
            return nodes
        return feasible_nodes_to_find(nodes, self.percentage_of_nodes_to_score)


class SampledView:
    """Filter and score results of the nodes that a sampling search has examined for one class of pods. It has the
    methods of `View`. Nodes are in the order in which they were examined.
    """

    def __init__(self, nodes: NodeColumns, profile: Profile, asked: Asked, pod: PodClass) -> None:
        self._nodes = nodes
        self._asked = asked
        self._profile = profile
        self._pod = pod
        self._feasible: list[Rows] = []
        self._counts: dict[int, int] = {}
        self.examined = 0  # Number of examined nodes

    def examine(self, rows: Rows) -> None:
        """Filter the nodes at these positions and add them to the examined ones."""
        status = np.zeros(len(rows), np.int64)
        for index, plugin in self._asked.filters:
            codes = plugin.filter(self._pod, self._nodes, rows)
            if codes is not None:
                status = refused_by(index, codes, status)
        for each, count in zip(*(row_list(part) for part in np.unique(status, return_counts=True)), strict=True):
            self._counts[each] = self._counts.get(each, 0) + count
        self._feasible.append(rows[status == FEASIBLE])
        self.examined += len(rows)

    @property
    def feasible(self) -> int:
        """Return the number of examined nodes that pass every filter."""
        return self._counts.get(FEASIBLE, 0)

    def feasible_rows(self) -> Rows:
        """Return the positions of the examined nodes that pass every filter, in the order of examination."""
        return np.concatenate(self._feasible) if self._feasible else np.zeros(0, np.intp)

    def exclusions(self) -> list[PluginExclusion]:
        """Return how many examined nodes each plugin refused and why. See `View.exclusions`."""
        return explained(self._counts, self._profile.filters, self._pod, self._nodes)

    def totals_among(self, rows: Rows) -> tuple[IntArray, list[tuple[int, int]]]:
        """Score these nodes. Return their weighted totals, and the range (low, high) of each plugin's raw scores."""
        totals, bounds = np.zeros(len(rows), np.int64), list[tuple[int, int]]()
        for index, (plugin, weight) in enumerate(self._profile.scores):
            raw = self._raw(index, rows)
            is_ranged = plugin.normalizes and len(raw) > 0
            bounds.append((int(raw.min()), int(raw.max())) if is_ranged else (0, 0))
            if index in self._asked.scores:
                totals += weight * plugin.normalize(raw, *bounds[-1])
        return totals, bounds

    def parts(self, rows: list[int], bounds: list[tuple[int, int]]) -> list[dict[str, int]]:
        """Return for each of these nodes: plugin -> weighted score, for the plugins that concern the pod. `bounds` are
        the ranges from `totals_among`, by which raw scores are normalized.
        """
        parts: list[dict[str, int]] = [{} for _ in rows]
        for index, (plugin, weight) in enumerate(self._profile.scores):
            if index not in self._asked.scores:
                continue
            scores = plugin.normalize(self._raw(index, np.array(rows, np.intp)), *bounds[index])
            for part, score in zip(parts, row_list(scores), strict=True):
                part[plugin.name] = weight * score
        return parts

    def _raw(self, index: int, rows: Rows) -> IntArray:
        plugin = self._asked.scores.get(index)
        raw = None if plugin is None else plugin.score(self._pod, self._nodes, rows)
        return np.zeros(len(rows), np.int64) if raw is None else raw


def search(
    look: SampledView,
    sampling: Sampling,
    first: Iterable[int],
    seed: int,
    sifted: Callable[[], Rows],
    nodes: NodeColumns,
) -> None:
    """Examine nodes in growing steps, which `look` collects, until enough of them are feasible or none is left. With
    random relaxation, the search also stops at 100 feasible nodes or more, if the last 50 of them were no better than
    the best one before. The nodes of `first` are examined in any case, before all others. `sifted`: returns the
    positions of examined nodes that are feasible after all filters, in the order of examination.
    """
    wanted = sampling.wanted(len(nodes))
    for rows in _chunks(nodes, list(first), seed):
        look.examine(rows)
        found = sifted()
        if len(found) >= wanted:
            return
        if sampling.random_relaxation and len(found) >= MIN_FEASIBLE_NODES:
            totals, _ = look.totals_among(found)
            if len(found) - int(totals.argmax()) > PATIENCE:
                return


def _chunks(nodes: NodeColumns, first: list[int], seed: int) -> Iterator[Rows]:
    if first:
        yield np.array(first, np.intp)
    count = len(nodes.names)
    start = seed % count if count else 0
    begin, length = 0, _FIRST_CHUNK
    while begin < count:
        rows = (np.arange(begin, min(begin + length, count)) + start) % count
        begin, length = begin + length, 2 * length
        rows = rows[nodes.alive[rows]]
        if first:
            rows = rows[~np.isin(rows, first)]
        if len(rows):
            yield rows
