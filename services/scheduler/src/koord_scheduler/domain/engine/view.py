"""All nodes as one class of pods sees them. Nodes that have changed are evaluated again."""

from collections import OrderedDict
from collections.abc import Iterable
from typing import Final, TypeAlias

import numpy as np
from koordcore.events.pod import NodeScore, PluginExclusion

from koord_scheduler.domain.cluster.equivalence_classes import PodClass
from koord_scheduler.domain.columns.node_columns import IntArray, NodeColumns, Rows, row_list
from koord_scheduler.domain.engine.answers import (
    CODE_BITS,
    FEASIBLE,
    MOST_KEPT,
    Answers,
    Refusals,
    RowAnswers,
    all_rows,
    explained,
    refusals_of,
)
from koord_scheduler.domain.engine.asked import RowPlugins
from koord_scheduler.domain.engine.ranking import INFEASIBLE
from koord_scheduler.domain.engine.view_scores import Bounds, Scores
from koord_scheduler.domain.engine.view_totals import Totals
from koord_scheduler.domain.framework.node_points import Reads, RowFunction

_FEW_ROWS: Final = 256
"""Up to this number, changed rows are evaluated one by one without arrays, because that is faster (measured)."""


class View:
    """Filter and score results of all nodes for one class of pods, kept between cycles. `refresh` evaluates the nodes
    that have changed.
    """

    def __init__(self, answers: Answers, pod: PodClass) -> None:
        self._answers = answers
        self.nodes = answers.nodes
        self._filters = answers.profile.filters
        self._pod = pod
        asked = answers.asked.of(pod)
        self._row_functions = None if asked.rows is None else _row_functions(asked.rows, pod, answers.nodes)
        self._scores = Scores(answers.profile, asked.scores)
        self.totals = Totals(answers.nodes)  # Total score of each node; `INFEASIBLE` for nodes that are not feasible
        self._shape_position = -1
        self._shape_fixed: IntArray = np.zeros(0, np.int64)
        self._shape_fixed_at = self._shape_fixed.data
        self._counts: dict[int, int] = {}
        self._feasible_rows: Rows | None = None
        self._exclusions: list[PluginExclusion] | None = None

    # --- who passes, and who refuses the others ----------------------------------------------------------------------

    @property
    def feasible(self) -> int:
        return self._counts.get(FEASIBLE, 0)

    def feasible_rows(self) -> Rows:
        """Ascending. Callers must not change the array."""
        if self._feasible_rows is None:
            self._feasible_rows = np.flatnonzero(self._scores.load.status == FEASIBLE)
        return self._feasible_rows

    def is_feasible(self, row: int) -> bool:
        return self._scores.load.status.item(row) == FEASIBLE

    def exclusions(self) -> list[PluginExclusion]:
        """In filter order."""
        if self._exclusions is None:
            self._exclusions = explained(self._counts, self._filters, self._pod, self.nodes)
        return self._exclusions

    def resolvable(self) -> Rows:
        """Positions of refused nodes for which preemption might help."""
        statuses = self._scores.load.status
        found: list[Rows] = []
        for index, plugin in enumerate(self._filters):
            rows = np.flatnonzero(statuses >> CODE_BITS == index + 1)
            if len(rows):
                found.append(rows[~plugin.unresolvable(self._pod, self.nodes, rows)])
        return np.sort(np.concatenate(found)) if found else np.zeros(0, np.intp)

    def refusals(self) -> list[Refusals]:
        return refusals_of(self._scores.load.status, self._filters, self._pod, self.nodes)

    # --- who is best -------------------------------------------------------------------------------------------------

    def best(self, count: int, seed: int) -> list[int]:
        """Positions of the `count` best feasible nodes, best first. `seed`, a hash of the pod: see `ranking`."""
        return self.totals.best(count, seed)

    @property
    def normalizes(self) -> bool:
        """Return whether the total of a node depends on which nodes are feasible, because a score is normalized."""
        return bool(self.totals.groups.places)

    def scored(self, rows: list[int]) -> list[NodeScore]:
        """Return total and scores per plugin of some feasible nodes, normalized over all feasible nodes."""
        names, totals, part_of = self.nodes.names, self.totals, self._scores.part_of
        parts = totals.groups.parts
        return [NodeScore(names[row], totals.of(row), part_of(row, parts[totals.group_of(row)])) for row in rows]

    def totals_among(self, rows: Rows) -> tuple[IntArray, Bounds]:
        """Totals of some feasible nodes, normalized over these alone, int64 (K,), and the range of the raw scores for
        each plugin.
        """
        scores = self._scores
        bounds = scores.bounds_over(rows)
        if not self.normalizes:
            return self.totals.among(rows), bounds
        return scores.weighted(rows, bounds), bounds

    def parts(self, rows: list[int], bounds: Bounds) -> list[dict[str, int]]:
        """Return for each node: plugin -> weighted score. `bounds` comes from `totals_among`."""
        return self._scores.parts(rows, bounds)

    # --- judging what changed ----------------------------------------------------------------------------------------

    def refresh(self) -> None:
        nodes, scores = self.nodes, self._scores
        if scores.load.position == nodes.load.position and len(scores.load.status) == nodes.capacity:
            return
        shape_moved = False
        if self._shape_position != nodes.shape.position or len(scores.shape.status) != nodes.capacity:
            shape = self._answers.shape_of(self._pod)
            shape_moved = shape is not scores.shape or shape.position != self._shape_position
            scores.shape, self._shape_position = shape, shape.position
            self._exclusions = None  # a filter code may stand for another reason now, see `TaintSets`
        if len(scores.load.status) != nodes.capacity:
            scores.load = RowAnswers(nodes.capacity, len(self._answers.profile.scores))
            changed = None
        else:
            changed = nodes.load.since(scores.load.position)
        scores.load.position = nodes.load.position
        if changed is not None:
            self.totals.unsettle(len(changed))
        if changed is None or 4 * len(changed) > len(nodes) + 4 * _FEW_ROWS:
            self._evaluate_rows(all_rows(nodes), everything=True, shape_moved=shape_moved)
        elif shape_moved or len(changed) > _FEW_ROWS or not self._evaluate_singly(changed):
            self._evaluate_rows(np.array(sorted(changed), np.intp), everything=False, shape_moved=shape_moved)
        self.totals.settle()

    def _evaluate_rows(self, rows: Rows, *, everything: bool, shape_moved: bool) -> None:
        """Ask the plugins that read load about some rows, all at once."""
        scores, load = self._scores, self._scores.load
        scores.changed()
        before = None if everything else load.status[rows]
        load.status[rows] = scores.shape.status[rows]
        self._answers.ask(Reads.LOAD, self._pod, rows, load)
        self._count(before, load.status[rows])
        totals = self.totals
        if everything or shape_moved or totals.groups.places != scores.ranged():
            totals.clear(scores.groups())
            rows = all_rows(self.nodes)
            self._shape_fixed = scores.constant() + scores.fixed(Reads.SHAPE, rows)
            self._shape_fixed_at = self._shape_fixed.data
        fixed = self._shape_fixed[rows] + scores.fixed(Reads.LOAD, rows)
        groups = scores.groups_of(totals.groups, rows)
        totals.put_many(rows, np.where(load.status[rows] == FEASIBLE, fixed, INFEASIBLE), groups)

    def _evaluate_singly(self, rows: Iterable[int]) -> bool:
        """Evaluate rows without arrays: a placement changes one row. False if a plugin needs arrays."""
        scores, totals = self._scores, self.totals
        if self._row_functions is None or len(self._shape_fixed) == 0:
            return False
        filters, row_scores = self._row_functions
        load, groups, fixed_at = scores.load, totals.groups, self._shape_fixed_at
        shape_status, status, raws = scores.shape.status_at, load.status_at, load.raw_at
        group_raws = [scores.raw_at(place) for place in groups.places] if groups.places else None
        for row in rows:
            before: int = status[row]
            after: int = shape_status[row]
            if after == FEASIBLE:
                for base, function in filters:
                    code = function(row)
                    if code:
                        after = base | code
                        break
            if before != after:
                status[row] = after
                self._recount(before, after)
            if after != FEASIBLE:
                totals.put(row, INFEASIBLE, 0)
                continue
            fixed: int = fixed_at[row]
            for index, function, weight in row_scores:
                score = function(row)
                raw = raws[index]
                if raw is not None:
                    raw[row] = score
                elif score:
                    return False
                fixed += weight * score
            group = groups.id_of(tuple([raw[row] for raw in group_raws])) if group_raws else 0
            totals.put(row, fixed, group)
        return True

    def _count(self, before: IntArray | None, after: IntArray) -> None:
        if before is None:
            self._feasible_rows = None
            values, counts = np.unique(after, return_counts=True)
            self._counts = dict(zip(row_list(values), row_list(counts), strict=True))
            self._exclusions = None
            return
        for old, new in zip(row_list(before), row_list(after), strict=True):
            if old != new:
                self._recount(old, new)

    def _recount(self, old: int, new: int) -> None:
        self._feasible_rows = None
        self._counts[old] = self._counts.get(old, 0) - 1
        self._counts[new] = self._counts.get(new, 0) + 1
        self._exclusions = None


_RowFunctions: TypeAlias = tuple[list[tuple[int, RowFunction]], list[tuple[int, RowFunction, int]]]
"""Filters with the base of their statuses, and scores with their places and weights, as functions of one row.

The weight is 0 if the plugin normalizes: then it counts by the group of the row.
"""


def _row_functions(plugins: RowPlugins, pod: PodClass, nodes: NodeColumns) -> _RowFunctions:
    filters = [((index + 1) << CODE_BITS, plugin.row_filter(pod, nodes)) for index, plugin in plugins.filters]
    scores = [
        (index, plugin.row_score(pod, nodes), 0 if plugin.normalizes else weight)
        for index, plugin, weight in plugins.scores
    ]
    return (
        [(base, function) for base, function in filters if function is not None],
        [(index, function, weight) for index, function, weight in scores if function is not None],
    )


class Views:
    """The cached views of one profile, one per class of pods. The least recently used ones are dropped. `keep`: whether
    views are kept between cycles.
    """

    def __init__(self, answers: Answers, *, keep: bool = True) -> None:
        self._answers = answers
        self._keep = keep
        self._views: OrderedDict[PodClass, View] = OrderedDict()

    def keeps(self, pod: PodClass) -> bool:
        """Return whether the class has a cached view. The method makes no view."""
        return pod in self._views

    def of(self, pod: PodClass) -> View:
        """After nodes that have changed since its last use were evaluated again."""
        if not self._keep:
            self._views.clear()
        view = self._views.get(pod)
        if view is None:
            view = self._views[pod] = View(self._answers, pod)
            if len(self._views) > MOST_KEPT:
                self._views.popitem(last=False)
        elif len(self._views) > MOST_KEPT // 2:
            self._views.move_to_end(pod)
        view.refresh()
        return view
