"""The nodes of one family, in cells: all nodes of a cell have equal results.

A node that has changed is evaluated again once for all classes of the family.
"""

from collections.abc import Callable, Hashable, Iterable
from typing import Final, NamedTuple, TypeAlias

import numpy as np

from koord_scheduler.domain.cluster.equivalence_classes import PodClass
from koord_scheduler.domain.columns.journal import Journal
from koord_scheduler.domain.columns.node_columns import IntArray, NodeColumns
from koord_scheduler.domain.engine.answers import FEASIBLE, NO_NODE, Answers, RowAnswers
from koord_scheduler.domain.engine.ranking import INFEASIBLE, Ranking, rankings_by
from koord_scheduler.domain.framework.node_points import RowFunction

_NOWHERE: Final = -1
_FIRST_CELLS: Final = 64
_NO_PARTS: Final = list[int]()
NO_HEAD: Final = -(1 << 40)
"""Head of a cell without feasible nodes. It stays negative when weighted scores are added."""
Cell: TypeAlias = tuple[int, tuple[int, ...], tuple[Hashable, ...]]
"""What the nodes of one cell have in common: filter status, raw scores, states.

The status is that of the shared part of all filters. The raw scores are those of `Shared.raws`; there are none if the
status refuses. The states are in the order of `Shared.states`; there are none if a filter by node shape refuses.
"""
_MOST_UNUSED: Final = 1024
"""With more cells without nodes than this, and than cells with nodes, all cells are made again."""


class Shared(NamedTuple):
    """Results and functions that all pod equivalence classes of a family share."""

    pod: PodClass  # One class of the family. All classes have the same results of plugins that read the shape of nodes.
    # (number that gives a filter status if a code is added, function from a row to a code) of each filter.
    filters: list[tuple[int, RowFunction]]
    # (index in the profile's scores, function from a row to a raw score, weight) of each score that does not normalize.
    scores: list[tuple[int, RowFunction, int]]
    # (index in the profile's scores, weight) of each score by node shape that does not normalize.
    shape_scores: list[tuple[int, int]]
    # For each score that normalizes: its index in the profile's scores, and a function from a row to its raw score.
    # None if the plugin reads the shape of nodes.
    raws: list[tuple[int, RowFunction | None]]
    # Functions from a row to a state of the node. Each class computes its own results from these states.
    states: list[Callable[[int], Hashable]]


class Cells:
    """All nodes, grouped into cells: nodes for which all classes of one family get equal results."""

    def __init__(self, answers: Answers, shared: Shared) -> None:
        self._answers = answers
        self.nodes: NodeColumns = answers.nodes
        self.shared = shared
        self._filters = shared.filters
        self._scores = shared.scores
        self._shape_scores = shared.shape_scores
        self._raws = shared.raws
        self._states = shared.states
        # Number that grows when classes have to evaluate all cells again, because indexes of cells mean other cells or
        # `raw_values` says otherwise which raw scores vary.
        self.made = 0
        self.cells: list[Cell] = []  # The cells. New cells are appended; cells without nodes stay.
        # Number of nodes in each cell, int64 (M,), M at least the number of cells.
        self.sizes: IntArray = np.zeros(_FIRST_CELLS, np.int64)
        # Greatest fixed total in each cell, int64 (M,); `NO_HEAD` if it has none. The fixed total of a node is the sum
        # of its weighted scores in `Shared.scores` and `Shared.shape_scores`.
        self.heads: IntArray = np.full(_FIRST_CELLS, NO_HEAD, np.int64)
        self.appeared = Journal()  # The cells that got their first node, in this order
        # Index of a cell -> its nodes by fixed total, for cells that the shared part does not refuse.
        self.rankings: dict[int, Ranking] = {}
        # For each node position, the weighted scores in its fixed total: `Shared.shape_scores`, then `Shared.scores`;
        # none if the node is refused.
        self.parts: list[list[int]] = []
        self.count = 0  # Number of nodes in all cells
        # For each element of `Shared.raws`, the raw score of all cells; two of the scores if they differ.
        self.raw_values: list[set[int]] = [set() for _ in shared.raws]
        self._ids: dict[Cell, int] = {}
        self._cell_of: list[int] = []
        self._fixed: list[int] = []
        self._places: list[int] = []  # name hashes: a position is used again for another node
        self._used = 0
        self._load = self.nodes.load
        self._load_position = -1
        self._shape_position = -1
        self._shape = RowAnswers(0, 0)

    def is_recorded(self) -> bool:
        """Return whether changes of nodes are recorded now. They are not recorded during a trial. Then the cells must
        not be used.
        """
        return self.nodes.load is self._load

    def cell_of(self, row: int) -> int:
        return self._cell_of[row]

    def fixed(self, row: int) -> int:
        """Return the fixed total of the node at position `row` (see `heads`); `INFEASIBLE` if it is refused."""
        return self._fixed[row]

    def _raw(self, index: int, row: int) -> int:
        """Return the raw score by node shape of one node; `index` is that of the plugin in the profile's scores."""
        raw = self._shape.raw_at[index]
        return 0 if raw is None else raw[row]

    def refresh(self) -> None:
        """Evaluate the nodes that have changed since the last call, and put them into their cells. All nodes are
        evaluated on the first call, if the changes are no longer known, or if many cells have no nodes.
        """
        nodes = self.nodes
        load, shape = nodes.load, nodes.shape
        if self._load_position == load.position and self._shape_position == shape.position:
            return
        rows = load.since(self._load_position) if self._load_position >= 0 else None
        if self._shape_position != shape.position:
            moved = shape.since(self._shape_position) if rows is not None else None
            rows = None if rows is None or moved is None else rows | moved
            self._shape, self._shape_position = self._answers.shape_of(self.shared.pod), shape.position
        self._load_position = load.position
        is_wasteful = len(self.cells) - self._used > max(_MOST_UNUSED, self._used)
        if rows is None or is_wasteful:
            self._make()
            return
        more = len(nodes.names) - len(self._cell_of)
        self._cell_of += [_NOWHERE] * more
        self._fixed += [INFEASIBLE] * more
        self._places += [0] * more
        self.parts += [_NO_PARTS] * more
        self._update(rows)

    def _make(self) -> None:
        self.made += 1
        self.cells.clear()
        self._ids.clear()
        for values in self.raw_values:
            values.clear()
        self.sizes.fill(0)
        self.heads.fill(NO_HEAD)
        self._used = self.count = 0
        rows = len(self.nodes.names)
        self._cell_of = [_NOWHERE] * rows
        self._fixed = [INFEASIBLE] * rows
        self.parts = [_NO_PARTS] * rows
        for row in range(rows):
            cell, fixed = self._cell_of[row], self._fixed[row] = self._evaluate(row)
            if cell != _NOWHERE:
                self._resize(cell, 1)
                if fixed >= 0 and fixed > self.heads.item(cell):
                    self.heads[cell] = fixed
        hashes = self.nodes.name_hash[:rows]
        self._places = hashes.tolist()
        groups, totals = np.array(self._cell_of, np.int64), np.array(self._fixed, np.int64)
        self.rankings = rankings_by(groups, totals, hashes, self.nodes.row_at)

    def _update(self, rows: Iterable[int]) -> None:
        for row in rows:
            before, fixed_before, place_before = self._cell_of[row], self._fixed[row], self._places[row]
            cell, fixed = self._evaluate(row)
            place: int = self.nodes.name_hash.item(row)
            if place == place_before and cell == before:
                if fixed != fixed_before:
                    self._fixed[row] = fixed
                    self._move(cell, place, fixed_before, fixed)
                continue
            self._cell_of[row], self._fixed[row], self._places[row] = cell, fixed, place
            if before != _NOWHERE:
                self._resize(before, -1)
                self._move(before, place_before, fixed_before, INFEASIBLE)
            if cell != _NOWHERE:
                self._resize(cell, 1)
                self._move(cell, place, INFEASIBLE, fixed)

    def _move(self, cell: int, place: int, before: int, after: int) -> None:
        if before == after:
            return
        ranking = self.rankings.get(cell)
        if ranking is None:
            ranking = self.rankings[cell] = Ranking(self.nodes.row_at)
        ranking.move(place, before, after)
        self.heads[cell] = ranking.levels[-1] if ranking.levels else NO_HEAD

    def _resize(self, cell: int, by: int) -> None:
        before: int = self.sizes.item(cell)
        self.sizes[cell] = before + by
        self.count += by
        if before == 0 or before + by == 0:
            self._used += by
            if before == 0:
                self.appeared.record(cell)

    def _evaluate(self, row: int) -> tuple[int, int]:
        """Return the index of the cell of a node and its fixed total; `INFEASIBLE` if the node is refused."""
        self.parts[row] = _NO_PARTS
        status: int = self._shape.status_at[row]
        if status != FEASIBLE:
            return (_NOWHERE if status == NO_NODE else self._id_of((status, (), ()))), INFEASIBLE
        for base, function in self._filters:
            code = function(row)
            if code:
                status = base | code
                break
        fixed = INFEASIBLE
        raws: tuple[int, ...] = ()
        if status == FEASIBLE:
            parts = [weight * self._raw(index, row) for index, weight in self._shape_scores]
            for _, function, weight in self._scores:
                parts.append(weight * function(row))
            self.parts[row], fixed = parts, sum(parts)
            raws = tuple([self._raw(index, row) if raw is None else raw(row) for index, raw in self._raws])
        return self._id_of((status, raws, tuple([state(row) for state in self._states]))), fixed

    def _id_of(self, cell: Cell) -> int:
        found = self._ids.get(cell)
        if found is None:
            found = self._ids[cell] = len(self.cells)
            self.cells.append(cell)
            for index, raw in enumerate(cell[1]):
                values = self.raw_values[index]
                if raw not in values and len(values) < 2:
                    values.add(raw)
                    self.made += 1
            if found >= len(self.sizes):
                self.sizes = np.concatenate([self.sizes, np.zeros(found, np.int64)])
                self.heads = np.concatenate([self.heads, np.full(found, NO_HEAD, np.int64)])
        return found
