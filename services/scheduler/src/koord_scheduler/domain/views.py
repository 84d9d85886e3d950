"""What the plugins answered for each kind of pod, kept and brought up to date row by row.

Pods of one template share a view; templates that differ in requests only share the part that reads the shape of nodes
(labels, taints). After a placement only the touched node is judged again. A view never changes an outcome: judging all
rows afresh gives the same arrays (tested).

    verdict of a row:  -1 no node,  0 feasible,  else (index of the refusing plugin + 1) << 48 | its code
    total of a row:    sum of weight * normalized score for feasible rows, -1 for all others

What a plugin says about a node because of pods elsewhere is not kept here: `engine` asks its judges at each decision.

source    scheduler-core spec, 12.2 b (equivalence classes)
"""

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple

import numpy as np
from koordcore.events.explanation import NodeScore, PluginExclusion

from koord_scheduler.domain.columns import IntArray, LabelColumn, NodeColumns, Rows, row_list
from koord_scheduler.domain.plugins.interface import (
    FilterPlugin,
    Reads,
    RowJudge,
    ScorePlugin,
    SingleRowFilter,
    SingleRowScore,
)
from koord_scheduler.domain.profile import Profile
from koord_scheduler.domain.ranking import INFEASIBLE, PartedRanking, Ranking, best_of
from koord_scheduler.domain.templates import PodTemplate

NO_NODE: Final = -1
FEASIBLE: Final = 0
CODE_BITS: Final = 48
CODE_MASK: Final = (1 << CODE_BITS) - 1
_VIEWS_KEPT: Final = 256
_FEW_ROWS: Final = 24
"""Up to so many changed rows are judged one by one without arrays: below this it is faster (measured)."""
_ONE_ZERO: Final = np.zeros(1, np.int64)
_NO_BOUNDS: Final = (0, 0)


class _Judged:
    """Answers of some of the plugins for every row: verdicts, and raw scores per plugin (None: all 0)."""

    __slots__ = ("position", "raw", "verdict")

    def __init__(self, capacity: int, scores: int) -> None:
        self.position = 0
        self.verdict: IntArray = np.full(capacity, NO_NODE, np.int64)
        self.raw: list[IntArray | None] = [None] * scores

    def store_raw(self, index: int, rows: Rows, values: IntArray | None) -> None:
        """Keep a plugin's raw scores for some rows."""
        raw = self.raw[index]
        if raw is None:
            if values is None:
                return
            raw = self.raw[index] = np.zeros(len(self.verdict), np.int64)
        raw[rows] = 0 if values is None else values


class _Singles(NamedTuple):
    """The plugins that read the load, when all of them can judge a single row without arrays; scores with weights."""

    filters: list[tuple[int, SingleRowFilter]]
    scores: list[tuple[int, SingleRowScore, int]]


class _RowJudges(NamedTuple):
    """The same for one kind of pod: those that have something to say of it. Filters with the base of their verdicts."""

    filters: list[tuple[int, RowJudge]]
    scores: list[tuple[int, RowJudge, int]]

    @classmethod
    def of(cls, singles: _Singles, pod: PodTemplate, nodes: NodeColumns) -> "_RowJudges":
        filters = [((index + 1) << CODE_BITS, plugin.row_filter(pod, nodes)) for index, plugin in singles.filters]
        scores = [(index, plugin.row_score(pod, nodes), weight) for index, plugin, weight in singles.scores]
        return cls(
            [(base, judge) for base, judge in filters if judge is not None],
            [(index, judge, weight) for index, judge, weight in scores if judge is not None],
        )


def _singles(profile: Profile) -> _Singles | None:
    filters: list[tuple[int, SingleRowFilter]] = []
    scores: list[tuple[int, SingleRowScore, int]] = []
    for index, plugin in enumerate(profile.filters):
        if plugin.reads is Reads.LOAD:
            if not isinstance(plugin, SingleRowFilter):
                return None
            filters.append((index, plugin))
    for index, (plugin, weight) in enumerate(profile.scores):
        if plugin.reads is Reads.LOAD:
            if plugin.normalizes or not isinstance(plugin, SingleRowScore):
                return None
            scores.append((index, plugin, weight))
    return _Singles(filters, scores)


class _PartsPlan(NamedTuple):
    """How the parts of a total are put together: as long as no plugin gains or changes its array of raw scores.

    constant      the parts of plugins that score 0 everywhere; the names of all
    raw           name, weight and raw scores of the others
    normalized    some of these are normalized by their range
    """

    constant: dict[str, int]
    raw: list[tuple[str, int, Callable[[int], int]]]
    normalized: bool


class Refusals(NamedTuple):
    """Rows that one plugin refuses for one reason; resolvable: pods that leave may change it."""

    plugin: str
    reason: str
    rows: Rows
    is_resolvable: bool


class Views:
    """The views of one scheduler over its columns. One decision at a time.

    keep    False: nothing is kept from one look to the next
    """

    def __init__(self, nodes: NodeColumns, profile: Profile, *, keep: bool = True) -> None:
        self._keep = keep
        self.nodes = nodes
        self.profile = profile
        self.singles = _singles(profile)
        self.scores_of_zero = [int(plugin.normalize(_ONE_ZERO, *_NO_BOUNDS)[0]) for plugin, _ in profile.scores]
        self._shapes: OrderedDict[bytes, _Judged] = OrderedDict()
        self._views: OrderedDict[PodTemplate, View] = OrderedDict()
        self._by_reads: dict[Reads, tuple[list[tuple[int, FilterPlugin]], list[tuple[int, ScorePlugin]]]] = {
            reads: (
                [(index, plugin) for index, plugin in enumerate(profile.filters) if plugin.reads is reads],
                [(index, plugin) for index, (plugin, _) in enumerate(profile.scores) if plugin.reads is reads],
            )
            for reads in Reads
        }
        load_filters = [plugin for _, plugin in self._by_reads[Reads.LOAD][0]]
        self._single_filters = [plugin for plugin in load_filters if isinstance(plugin, SingleRowFilter)]
        self._other_filters = [plugin for plugin in load_filters if not isinstance(plugin, SingleRowFilter)]

    def keeps(self, pod: PodTemplate) -> bool:
        """Whether there is a view of the template."""
        return pod in self._views

    def of(self, pod: PodTemplate) -> "View":
        """The up-to-date view of a template."""
        if not self._keep:
            self._views.clear()
        view = self._views.get(pod)
        if view is None:
            view = self._views[pod] = View(self, pod)
            if len(self._views) > _VIEWS_KEPT:
                self._views.popitem(last=False)
        elif len(self._views) > _VIEWS_KEPT // 2:
            self._views.move_to_end(pod)
        view.refresh()
        return view

    def passing(self, pod: PodTemplate, rows: Rows) -> Rows:
        """Those of the rows that pass every filter; answered without keeping a view."""
        nodes = self.nodes
        rows = rows[nodes.alive[rows]]
        for plugin in self.profile.filters:
            if len(rows) == 0:
                return rows
            codes = plugin.filter(pod, nodes, rows)
            if codes is not None:
                rows = rows[codes == 0]
        return rows

    def passes(self, pod: PodTemplate, row: int) -> bool:
        """Whether one row passes every filter as things stand this moment, trials of the load included."""
        if pod.shape_key not in self._shapes:
            return len(self.passing(pod, np.array([row], np.intp))) > 0
        if not self.suits(pod, row):
            return False
        for single in self._single_filters:
            judge = single.row_filter(pod, self.nodes)
            if judge is not None and judge(row):
                return False
        for plugin in self._other_filters:
            codes = plugin.filter(pod, self.nodes, np.array([row], np.intp))
            if codes is not None and codes[0]:
                return False
        return True

    def suits(self, pod: PodTemplate, row: int) -> bool:
        """Whether one row passes the filters that read no load."""
        return self.shape_of(pod).verdict.item(row) == FEASIBLE

    def resolvable(self, pod: PodTemplate) -> Rows:
        """The rows that a filter refuses, but might not if pods left the node; the view has to be up to date."""
        verdicts = self._views[pod].verdicts
        found: list[Rows] = []
        for index, plugin in enumerate(self.profile.filters):
            rows = np.flatnonzero(verdicts >> CODE_BITS == index + 1)
            if len(rows):
                found.append(rows[~plugin.unresolvable(pod, self.nodes, rows)])
        return np.sort(np.concatenate(found)) if found else np.zeros(0, np.intp)

    def refusals(self, pod: PodTemplate) -> list[Refusals]:
        """Who refuses which rows why; the view has to be up to date."""
        return refusals_of(self._views[pod].verdicts, self.profile.filters, pod, self.nodes)

    def shape_of(self, pod: PodTemplate) -> _Judged:
        """Up-to-date answers of the plugins that read the shape of nodes."""
        judged = self._shapes.get(pod.shape_key) if self._keep else None
        if judged is None or len(judged.verdict) != self.nodes.capacity:
            judged = self._shapes[pod.shape_key] = _Judged(self.nodes.capacity, len(self.profile.scores))
            changed = None
            if len(self._shapes) > _VIEWS_KEPT:
                self._shapes.popitem(last=False)
        else:
            self._shapes.move_to_end(pod.shape_key)
            if judged.position == self.nodes.shape.position:
                return judged
            changed = self.nodes.shape.since(judged.position)
        rows = all_rows(self.nodes) if changed is None else np.array(sorted(changed), np.intp)
        judged.verdict[rows] = np.where(self.nodes.alive[rows], FEASIBLE, NO_NODE)
        self.judge(Reads.SHAPE, pod, rows, judged)
        judged.position = self.nodes.shape.position
        return judged

    def judge(self, reads: Reads, pod: PodTemplate, rows: Rows, into: _Judged) -> None:
        """Ask the plugins of one kind about some rows; a row keeps the verdict of the first plugin that refused it."""
        filters, scores = self._by_reads[reads]
        nodes = self.nodes
        for index, plugin in filters:
            codes = plugin.filter(pod, nodes, rows)
            if codes is not None:
                verdict = into.verdict[rows]
                into.verdict[rows] = np.where(
                    (verdict == FEASIBLE) & (codes != 0), codes | ((index + 1) << CODE_BITS), verdict
                )
        for index, plugin in scores:
            into.store_raw(index, rows, plugin.score(pod, nodes, rows))


class View:
    """All nodes as one kind of pod sees them."""

    def __init__(self, views: Views, pod: PodTemplate) -> None:
        self._views = views
        self._pod = pod
        self._shape: _Judged = _Judged(0, 0)
        self._shape_position = -1
        self._load = _Judged(0, 0)
        self._judges = None if views.singles is None else _RowJudges.of(views.singles, pod, views.nodes)
        self._shape_total: IntArray = np.zeros(0, np.int64)
        self._total: IntArray = np.zeros(0, np.int64)
        self._bounds: list[tuple[int, int]] | None = None
        self._parts_plan: _PartsPlan | None = None
        self._counts: dict[int, int] = {}
        self._feasible_rows: Rows | None = None
        self._exclusions: list[PluginExclusion] | None = None
        self._ranking: Ranking | None = None
        self._parted: PartedRanking | None = None
        self._to_part: tuple[LabelColumn, int] | None = None
        self._is_unsettled = True

    @property
    def feasible(self) -> int:
        """How many nodes pass every filter."""
        return self._counts.get(FEASIBLE, 0)

    def feasible_rows(self) -> Rows:
        """The rows that pass every filter, ascending; not to be changed."""
        if self._feasible_rows is None:
            self._feasible_rows = np.flatnonzero(self._load.verdict == FEASIBLE)
        return self._feasible_rows

    @property
    def verdicts(self) -> IntArray:
        """Verdict of every row, int64 (N,)."""
        return self._load.verdict

    def refresh(self) -> None:
        """Judge again what changed since the last time."""
        nodes = self._views.nodes
        if self._load.position == nodes.load.position and len(self._load.verdict) == nodes.capacity:
            return
        shape_moved = False
        if self._shape_position != nodes.shape.position or len(self._shape.verdict) != nodes.capacity:
            shape = self._views.shape_of(self._pod)
            shape_moved = shape is not self._shape or shape.position != self._shape_position
            self._shape, self._shape_position = shape, shape.position
        if len(self._load.verdict) != nodes.capacity:
            self._load = _Judged(nodes.capacity, len(self._views.profile.scores))
            self._total = np.full(nodes.capacity, INFEASIBLE, np.int64)
            self._ranking = None
            changed = None
        else:
            changed = nodes.load.since(self._load.position)
        self._load.position = nodes.load.position
        if changed is None or 4 * len(changed) > len(nodes) + 4 * _FEW_ROWS:
            self._judge_rows(all_rows(nodes), everything=True, shape_moved=shape_moved)
        elif shape_moved or len(changed) > _FEW_ROWS or not all(map(self._judge_one, changed)):
            self._judge_rows(np.array(sorted(changed), np.intp), everything=False, shape_moved=shape_moved)

    def exclusions(self) -> list[PluginExclusion]:
        """How many nodes each plugin refused and why, in the order of the filters; without those that refused none."""
        if self._exclusions is None:
            views = self._views
            self._exclusions = explained(self._counts, views.profile.filters, self._pod, views.nodes)
        return self._exclusions

    def best(self, count: int, seed: int) -> list[int]:
        """The best feasible rows, best first; see `ranking`."""
        if self._ranking is None:
            if self._is_unsettled:
                # Everything has just been judged anew; buckets are worth their making only if that does not go on.
                self._is_unsettled = False
                return best_of(self._total, self._views.nodes.name_hash, seed, count)
            self._ranking = Ranking(self._total, self._views.nodes.name_hash)
        return self._ranking.best(seed, count)

    def parted(self, label: LabelColumn) -> PartedRanking | None:
        """The feasible rows in order, by their values of a label.

        None: everything has just been judged anew, or the label has changed; it is made when that does not go on.
        """
        if self._parted is None or not self._parted.is_by(label):
            wanted, self._to_part = self._to_part, (label, label.version)
            if wanted is None or wanted[0] is not label or wanted[1] != label.version:
                self._parted = None
                return None
            self._parted = PartedRanking(self._total, self._views.nodes.name_hash, label)
        return self._parted

    def place_of(self, row: int) -> int:
        """Place of a row on the ring, see `ranking`."""
        return self._views.nodes.name_hash.item(row)

    def total_of(self, row: int) -> int:
        """Total of a row, `INFEASIBLE` if it is not feasible."""
        return self._total.item(row)

    def scored(self, rows: list[int]) -> list[NodeScore]:
        """What some feasible rows scored, normalized over all feasible ones."""
        plan = self._parts_plan
        if plan is None:
            plan = self._parts_plan = self._plan_parts()
        if plan.normalized:
            parts = self.parts(rows)
        else:
            parts = [plan.constant.copy() for _ in rows]
            for name, weight, score_of in plan.raw:
                for part, row in zip(parts, rows, strict=True):
                    part[name] = weight * score_of(row)
        names, total = self._views.nodes.names, self._total.item
        return [NodeScore(names[row], total(row), part) for row, part in zip(rows, parts, strict=True)]

    def _plan_parts(self) -> "_PartsPlan":
        assert self._bounds is not None, "the view was never refreshed"
        constant: dict[str, int] = {}
        raw: list[tuple[str, int, Callable[[int], int]]] = []
        normalized = False
        for index, (plugin, weight) in enumerate(self._views.profile.scores):
            scores = self._raw(index)
            constant[plugin.name] = weight * self._views.scores_of_zero[index]
            if scores is not None:
                raw.append((plugin.name, weight, scores.item))
                normalized = normalized or plugin.normalizes
        return _PartsPlan(constant, raw, normalized)

    def totals_among(self, rows: Rows) -> tuple[IntArray, list[tuple[int, int]]]:
        """Totals of some feasible rows, int64 (K,), normalized over these alone, and the bounds of that."""
        assert self._bounds is not None, "the view was never refreshed"
        if not self._is_normalized():
            return self._total[rows], self._bounds
        bounds = self._bounds_over(rows)
        return self._weighted(Reads.SHAPE, rows, bounds) + self._weighted(Reads.LOAD, rows, bounds), bounds

    def parts(self, rows: list[int], bounds: list[tuple[int, int]] | None = None) -> list[dict[str, int]]:
        """For each of the rows the weighted score of each plugin; `bounds` as `totals_among` gave them."""
        bounds = self._bounds if bounds is None else bounds
        assert bounds is not None, "the view was never refreshed"
        parts: list[dict[str, int]] = [{} for _ in rows]
        for index, (plugin, weight) in enumerate(self._views.profile.scores):
            raw = self._raw(index)
            if raw is not None and not plugin.normalizes:
                for part, row in zip(parts, rows, strict=True):
                    part[plugin.name] = weight * raw.item(row)
                continue
            if raw is None and bounds[index] == _NO_BOUNDS:
                score = weight * self._views.scores_of_zero[index]
                for part in parts:
                    part[plugin.name] = score
                continue
            chosen = _ONE_ZERO if raw is None else raw[rows]
            scores = row_list(plugin.normalize(chosen, *bounds[index])) if plugin.normalizes else row_list(chosen)
            for part, score in zip(parts, scores if raw is not None else scores * len(rows), strict=True):
                part[plugin.name] = weight * score
        return parts

    def _judge_rows(self, rows: Rows, *, everything: bool, shape_moved: bool) -> None:
        """Ask the plugins that read the load about some rows, all at once."""
        load = self._load
        self._parts_plan = None
        before = None if everything else load.verdict[rows]
        load.verdict[rows] = self._shape.verdict[rows]
        self._views.judge(Reads.LOAD, self._pod, rows, load)
        self._count(before, load.verdict[rows])
        bounds = self._bounds_now()
        if bounds != self._bounds or shape_moved:
            self._bounds = bounds
            rows = all_rows(self._views.nodes)
            self._shape_total = self._weighted(Reads.SHAPE, rows, bounds)
        total = self._shape_total[rows] + self._weighted(Reads.LOAD, rows, bounds)
        self._put_totals(rows, np.where(load.verdict[rows] == FEASIBLE, total, INFEASIBLE))

    def _put_totals(self, rows: Rows, totals: IntArray) -> None:
        orders = [order for order in (self._ranking, self._parted) if order is not None]
        if orders and 8 * len(rows) < len(self._views.nodes):
            places = self._views.nodes.name_hash[rows].tolist()
            before = row_list(self._total[rows])
            for row, place, old, new in zip(row_list(rows), places, before, row_list(totals), strict=True):
                if old != new:
                    for order in orders:
                        order.move(row, place, old, new)
        else:
            self._ranking, self._is_unsettled = None, True
            self._parted = self._to_part = None
        self._total[rows] = totals

    def _put_total(self, row: int, total: int) -> None:
        before = self._total.item(row)
        if before != total:
            if self._ranking is not None:
                self._ranking.move(row, self._views.nodes.name_hash.item(row), before, total)
            if self._parted is not None:
                self._parted.move(row, self._views.nodes.name_hash.item(row), before, total)
            self._total[row] = total

    def _judge_one(self, row: int) -> bool:
        """The same for one row without arrays, which is what a placement changes; False: it has to go the long way.

        The long way is needed when a plugin has no short one, or when the set of feasible nodes changes although
        scores are normalized over it.
        """
        judges, load = self._judges, self._load
        if judges is None or self._bounds is None:
            return False
        before, after = load.verdict.item(row), self._shape.verdict.item(row)
        if after == FEASIBLE:
            for base, judge in judges.filters:
                code = judge(row)
                if code:
                    after = base | code
                    break
        if before != after:
            if (before == FEASIBLE or after == FEASIBLE) and self._is_normalized():
                return False
            load.verdict[row] = after
            self._recount(before, after)
        if after != FEASIBLE:
            self._put_total(row, INFEASIBLE)
            return True
        total = self._shape_total.item(row)
        for index, judge, weight in judges.scores:
            score = judge(row)
            raw = load.raw[index]
            if raw is not None:
                raw[row] = score
            elif score:
                return False
            total += weight * score
        self._put_total(row, total)
        return True

    @property
    def normalizes(self) -> bool:
        """Whether totals depend on which nodes are feasible, so that they are others among some of them."""
        return self._is_normalized()

    def is_feasible(self, row: int) -> bool:
        """Whether one row passes every filter."""
        return self._load.verdict.item(row) == FEASIBLE

    def _is_normalized(self) -> bool:
        scores = self._views.profile.scores
        return any(plugin.normalizes and self._raw(index) is not None for index, (plugin, _) in enumerate(scores))

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

    def _bounds_now(self) -> list[tuple[int, int]]:
        if not self._is_normalized():
            return [(0, 0)] * len(self._views.profile.scores)
        return self._bounds_over(np.flatnonzero(self._load.verdict == FEASIBLE))

    def _bounds_over(self, feasible: Rows) -> list[tuple[int, int]]:
        """Least and greatest raw score over these rows, for the plugins that normalize by them."""
        bounds: list[tuple[int, int]] = []
        for index, (plugin, _) in enumerate(self._views.profile.scores):
            raw = self._raw(index)
            if raw is None or not plugin.normalizes or len(feasible) == 0:
                bounds.append((0, 0))
            else:
                among = raw[feasible]
                bounds.append((int(among.min()), int(among.max())))
        return bounds

    def _weighted(self, reads: Reads, rows: Rows, bounds: list[tuple[int, int]]) -> IntArray:
        """Sum of weight * normalized score of the plugins of one kind, shape (K,)."""
        total = np.zeros(len(rows), np.int64)
        for index, (plugin, weight) in enumerate(self._views.profile.scores):
            if plugin.reads is reads:
                raw = self._raw(index)
                chosen = np.zeros(len(rows), np.int64) if raw is None else raw[rows]
                total += weight * plugin.normalize(chosen, *bounds[index])
        return total

    def _raw(self, index: int) -> IntArray | None:
        """Raw scores of a plugin for every row; None: all 0."""
        reads = self._views.profile.scores[index][0].reads
        return (self._shape if reads is Reads.SHAPE else self._load).raw[index]


def refusals_of(
    verdicts: IntArray, filters: Sequence[FilterPlugin], pod: PodTemplate, nodes: NodeColumns
) -> list[Refusals]:
    """Who refuses which rows why. verdicts: of every row, int64 (N,)."""
    found: list[Refusals] = []
    for verdict in row_list(np.unique(verdicts[verdicts > FEASIBLE])):
        plugin = filters[(verdict >> CODE_BITS) - 1]
        reason = ", ".join(plugin.reasons(pod, nodes, verdict & CODE_MASK))
        rows = np.flatnonzero(verdicts == verdict)
        never = plugin.unresolvable(pod, nodes, rows)
        found += [
            Refusals(plugin.name, reason, part, resolvable)
            for part, resolvable in ((rows[~never], True), (rows[never], False))
            if len(part)
        ]
    return found


def explained(
    counts: Mapping[int, int], filters: Sequence[FilterPlugin], pod: PodTemplate, nodes: NodeColumns
) -> list[PluginExclusion]:
    """How many nodes each plugin refused and why, in the order of the filters; without those that refused none.

    counts    verdict -> number of nodes
    """
    excluded = [0] * len(filters)
    reasons: list[dict[str, int]] = [{} for _ in filters]
    for verdict in sorted(counts):
        count = counts[verdict]
        if verdict <= FEASIBLE or count == 0:
            continue
        index = (verdict >> CODE_BITS) - 1
        excluded[index] += count
        for reason in filters[index].reasons(pod, nodes, verdict & CODE_MASK):
            reasons[index][reason] = reasons[index].get(reason, 0) + count
    return [
        PluginExclusion(plugin=plugin.name, excluded=excluded[index], reasons=reasons[index])
        for index, plugin in enumerate(filters)
        if excluded[index]
    ]


def all_rows(nodes: NodeColumns) -> Rows:
    """Every row that is or was a node."""
    return np.arange(len(nodes.names), dtype=np.intp)
