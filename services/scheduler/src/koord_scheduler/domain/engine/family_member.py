"""One class of a family: evaluates cells instead of nodes, and finds the best nodes among all cells."""

from collections.abc import Callable, Hashable, Sequence
from typing import Final, NamedTuple

import numpy as np
from koordcore.events.pod import NodeScore, PluginExclusion

from koord_scheduler.domain.cluster.equivalence_classes import PodClass
from koord_scheduler.domain.columns.node_columns import IntArray, row_list
from koord_scheduler.domain.engine.answers import CODE_BITS, FEASIBLE, explained
from koord_scheduler.domain.engine.cross_node import Choice
from koord_scheduler.domain.engine.family_cells import NO_HEAD, Cell, Cells
from koord_scheduler.domain.engine.ranking import Ranking, best_of_groups, on_ring
from koord_scheduler.domain.framework.node_points import FilterPlugin, ScorePlugin

_NOTHING: Final = np.zeros(0, np.int64)
_FEW: Final = 16
"""For at most so many new cells, a loop is faster than arrays."""


class Own(NamedTuple):
    """Filters and scores of one class of a family that differ from those of the other classes."""

    pod: PodClass
    # (number that gives a filter status if a code is added, index of the state in a cell, function from a state to a
    # code) of each filter.
    filters: list[tuple[int, int, Callable[[Hashable], int]]]
    # (index in the profile's scores, index of the state in a cell, function from a state to a raw score) of each score.
    scores: list[tuple[int, int, Callable[[Hashable], int]]]


class _Ranged:
    """The raw scores of all cells from one plugin, normalized over the cells that are present.

    A cell is present if it has nodes and the class does not refuse them.

    Args:
        place: Index of its raw score among those of a cell, see `Member._raws`.

    Attributes:
        raws: Raw score of each cell, int64 (M,).
        parts: Weighted normalized score of each cell, int64 (M,); valid for cells that are present.
        low, high: Least and greatest raw score of the cells that are present.
        low_at, high_at: Cells that have these raw scores.
    """

    def __init__(self, plugin: ScorePlugin, weight: int, place: int) -> None:
        self.plugin = plugin
        self.weight = weight
        self.place = place
        self.raws: IntArray = _NOTHING
        self.parts: IntArray = _NOTHING
        self.low = self.high = 0
        self.low_at = self.high_at = 0
        self._part_of: dict[int, int] = {}  # raw score -> part, in the present range

    def grow(self, size: int) -> None:
        self.raws, self.parts = _grown(self.raws, size), _grown(self.parts, size)

    def measure(self, cells: IntArray) -> bool:
        """Find the range over these cells, of which there is at least one. Return whether it has changed."""
        among = self.raws[cells]
        self.low_at, self.high_at = cells.item(int(among.argmin())), cells.item(int(among.argmax()))
        low: int = self.raws.item(self.low_at)
        high: int = self.raws.item(self.high_at)
        if low == self.low and high == self.high:
            return False
        self.low, self.high = low, high
        self._part_of = {}
        return True

    def normalize(self, first: int, end: int) -> IntArray:
        """Compute `parts` of the cells from `first` to before `end`, and return them."""
        part: IntArray = self.weight * self.plugin.normalize(self.raws[first:end], self.low, self.high)
        self.parts[first:end] = part
        return part

    def normalize_one(self, cell: int) -> int:
        """Compute the element of `parts` of one cell, and return it."""
        raw: int = self.raws.item(cell)
        part = self._part_of.get(raw)
        if part is None:
            part = self._part_of[raw] = self.normalize(cell, cell + 1).item(0)
        self.parts[cell] = part
        return part


class Member:
    """One class of a family, with its results for all cells. `scores`: the scores of the profile, with weights.
    `asked`: indexes of the scores that apply to the class, ascending. Results contain no other scores.
    """

    def __init__(
        self,
        cells: Cells,
        own: Own,
        filters: Sequence[FilterPlugin],
        scores: Sequence[tuple[ScorePlugin, int]],
        asked: Sequence[int],
    ) -> None:
        self._cells = cells
        self._pod = own.pod
        self._own_filters = own.filters
        self._own_scores = own.scores
        self._filters = filters
        self._zero = {scores[index][0].name: 0 for index in asked}
        places = [*[index for index, _ in cells.shared.raws], *[index for index, _, _ in own.scores]]
        self._normalizing = [scores[index] for index in places]
        self._ranged: list[_Ranged] = []  # those whose raw scores vary
        self._uniform = 0  # sum of the parts of the others, which `_zero` contains
        plain = [index for index, _ in cells.shared.shape_scores] + [index for index, _, _ in cells.shared.scores]
        self._plain = [scores[index][0].name for index in plain]
        self._made = -1
        self._appeared = 0
        self._is_measured = False
        self._statuses: list[int] = []
        self._passes: IntArray = _NOTHING  # 1 for each cell that the class does not refuse, otherwise 0
        self._added: IntArray = _NOTHING  # sum of the parts of each cell; NO_HEAD if the class refuses it

    @property
    def can_choose(self) -> bool:
        """Return whether `choice` may be called now. It must not be called during a trial."""
        return self._cells.is_recorded()

    def choice(self, count: int, seed: int) -> Choice:
        """The `count` best nodes for pods of the class. `seed`: see `ranking`."""
        cells = self._cells
        cells.refresh()
        known = len(cells.cells)
        first = self._evaluate()
        sizes = cells.sizes[:known]
        feasible = int(np.dot(sizes, self._passes[:known]))
        exclusions = [] if feasible == cells.count else self._exclusions(sizes)
        if not feasible:
            self._is_measured = False
            return Choice(0, [], [], exclusions)
        self._normalize(first, known)
        best = self._best(cells.heads[:known] + self._added[:known], seed, count)
        return Choice(feasible, best, [self._scored(row) for row in best], exclusions)

    def _best(self, totals: IntArray, seed: int, count: int) -> list[int]:
        """Positions of the `count` best nodes, best first. `totals`: of the best node of each cell, int64 (M,); below 0
        without one.
        """
        cells = self._cells
        row_at, known = cells.nodes.row_at, len(totals)
        top = int(totals.argmax())
        # Most often, enough nodes have the greatest total.
        chosen = row_list((totals == totals[top]).nonzero()[0])
        places: list[int] = []
        for cell in chosen:
            ranking = cells.rankings[cell]
            places += ranking.nearest(ranking.levels[-1], seed, count)
        if len(places) >= count:
            return [row_at[place] for place in on_ring(places, seed)[:count]]
        least = int(np.partition(totals, known - count)[known - count]) if known > count else 0
        chosen = row_list((totals >= max(least, 0)).nonzero()[0])
        rankings: dict[int, Ranking] = {place: cells.rankings[cell] for place, cell in enumerate(chosen)}
        added = [self._added.item(cell) for cell in chosen]
        return best_of_groups(rankings, added, row_at, seed, count)

    def _begin(self) -> None:
        """Forget all cells, and find out which raw scores vary."""
        self._made = self._cells.made
        self._is_measured = False
        self._statuses = []
        self._ranged = []
        self._uniform = 0
        for place, (plugin, weight) in enumerate(self._normalizing):
            values = self._cells.raw_values[place] if place < len(self._cells.raw_values) else None
            if values is None or len(values) != 1:
                self._ranged.append(_Ranged(plugin, weight, place))
                continue
            (raw,) = values
            part: int = weight * plugin.normalize(np.array([raw], np.int64), raw, raw).item(0)
            self._zero[plugin.name] = part
            self._uniform += part
        for ranged in self._ranged:
            ranged.grow(len(self._passes))

    def _evaluate(self) -> int:
        """Evaluate the cells that are new to the class, and return the index of the first one."""
        cells = self._cells
        if self._made != cells.made:
            self._begin()
        first, size = len(self._statuses), len(cells.sizes)
        if len(self._passes) < size:
            self._passes, self._added = _grown(self._passes, size), _grown(self._added, size)
            for ranged in self._ranged:
                ranged.grow(size)
        for index in range(first, len(cells.cells)):
            cell = cells.cells[index]
            status = self._status(cell)
            self._statuses.append(status)
            self._passes[index] = 1 if status == FEASIBLE else 0
            if status == FEASIBLE:
                raws = self._raws(cell)
                for ranged in self._ranged:
                    ranged.raws[index] = raws[ranged.place]
        return first

    def _status(self, cell: Cell) -> int:
        """Return the filter status of the nodes of a cell: that of the first filter which refuses them."""
        status, _, states = cell
        if not states:
            return status
        for base, place, code_of in self._own_filters:
            if status != FEASIBLE and base >> CODE_BITS > status >> CODE_BITS:
                continue
            code = code_of(states[place])
            if code:
                is_same = base >> CODE_BITS == status >> CODE_BITS
                status = status | code if is_same else base | code
        return status

    def _raws(self, cell: Cell) -> list[int]:
        """Return the raw scores of the nodes of a cell that no filter refuses, in the order of `_normalizing`."""
        _, raws, states = cell
        return [*raws, *[score_of(states[place]) for _, place, score_of in self._own_scores]]

    def _normalize(self, first: int, known: int) -> None:
        """Normalize the raw scores over the cells that are present, if their range has changed or cells are new.
        `first`: index of the first cell that is new to the class.
        """
        cells = self._cells
        if not self._is_range_known():
            present = np.flatnonzero(self._passes[:known] * cells.sizes[:known])
            has_changed = [ranged.measure(present) for ranged in self._ranged]
            if not self._is_measured or any(has_changed):
                first = 0
            self._is_measured = True
        self._appeared = cells.appeared.position
        if known - first <= _FEW:
            for cell in range(first, known):
                part = self._uniform
                if self._statuses[cell] == FEASIBLE:
                    for ranged in self._ranged:
                        part += ranged.normalize_one(cell)
                else:
                    part = NO_HEAD
                self._added[cell] = part
            return
        added: IntArray = (1 - self._passes[first:known]) * NO_HEAD + self._uniform
        for ranged in self._ranged:
            added += ranged.normalize(first, known)
        self._added[first:known] = added

    def _is_range_known(self) -> bool:
        """Return whether the ranges of raw scores are those of the cells that are present now."""
        appeared = self._cells.appeared.since(self._appeared) if self._is_measured else None
        if appeared is None:
            return False
        sizes = self._cells.sizes
        for ranged in self._ranged:
            if not sizes.item(ranged.low_at) or not sizes.item(ranged.high_at):
                return False
        for cell in appeared:
            if self._statuses[cell] == FEASIBLE and sizes.item(cell):
                for ranged in self._ranged:
                    if not ranged.low <= ranged.raws.item(cell) <= ranged.high:
                        return False
        return True

    def _scored(self, row: int) -> NodeScore:
        cells = self._cells
        cell = cells.cell_of(row)
        part = self._zero.copy()
        parts = cells.parts[row]
        for index, name in enumerate(self._plain):
            part[name] = parts[index]
        for ranged in self._ranged:
            part[ranged.plugin.name] = ranged.parts.item(cell)
        return NodeScore(cells.nodes.names[row], cells.fixed(row) + self._added.item(cell), part)

    def _exclusions(self, sizes: IntArray) -> list[PluginExclusion]:
        counts: dict[int, int] = {}
        for status, size in zip(self._statuses, row_list(sizes), strict=True):
            if size and status != FEASIBLE:
                counts[status] = counts.get(status, 0) + size
        return explained(counts, self._filters, self._pod, self._cells.nodes)


def _grown(array: IntArray, size: int) -> IntArray:
    return np.concatenate([array, np.zeros(size - len(array), np.int64)])
