"""Weights raw scores and normalizes them over the feasible nodes, in total and per plugin."""

from collections.abc import Container
from typing import Final, NamedTuple

import numpy as np

from koord_scheduler.domain.columns.node_columns import IntArray, Rows, row_list
from koord_scheduler.domain.engine.answers import RowAnswers
from koord_scheduler.domain.engine.view_totals import Groups
from koord_scheduler.domain.framework.node_points import Reads
from koord_scheduler.domain.framework.profile import Profile

Bounds = list[tuple[int, int]]
"""Least and greatest raw score of each plugin over the rows by which scores are normalized; (0, 0) if they are not."""
_NO_BOUNDS: Final = (0, 0)
_ONE_ZERO: Final = np.zeros(1, np.int64)


class _PartsPlan(NamedTuple):
    """How the parts of a total are computed, valid until a plugin gets or changes its array of raw scores."""

    constant: dict[str, int]  # Every plugin -> its part if its raw score is 0
    # Name, weight and raw scores of the plugins that have an array and do not normalize.
    raw: list[tuple[str, int, memoryview]]


class Scores:
    """The raw scores of all nodes for one class of pods, and how weighted scores are computed from them. A plugin
    normalizes if its scores depend on the range of raw scores over the feasible nodes. `asked`: indexes of the scores
    that apply to the class. Results contain no other scores.
    """

    def __init__(self, profile: Profile, asked: Container[int]) -> None:
        self._scores = profile.scores
        self._asked = asked
        self._of_zero = [int(plugin.normalize(_ONE_ZERO, *_NO_BOUNDS)[0]) for plugin, _ in profile.scores]
        self._plan: _PartsPlan | None = None
        self.shape = RowAnswers(0, 0)  # Results of the plugins that read the shape of nodes
        self.load = RowAnswers(0, 0)  # Results of the plugins that read load

    def changed(self) -> None:
        """Drop the cache of `part_of`, because many nodes were evaluated again."""
        self._plan = None

    def ranged(self) -> list[int]:
        """Return the indexes of the scores that are normalized, except those whose raw scores are all 0."""
        return [
            index
            for index, (plugin, _) in enumerate(self._scores)
            if plugin.normalizes and index in self._asked and self.raw(index) is not None
        ]

    def groups(self) -> Groups:
        return Groups([(index, *self._scores[index]) for index in self.ranged()])

    def groups_of(self, groups: Groups, rows: Rows) -> IntArray:
        """The number of the group of each node, int64 (K,)."""
        raws = [raw[rows] for place in groups.places if (raw := self.raw(place)) is not None]
        return groups.ids_of(raws, len(rows))

    def constant(self) -> int:
        """Return the weighted score that each node gets from normalizing plugins whose raw scores are all 0."""
        return sum(
            weight * self._of_zero[index]
            for index, (plugin, weight) in enumerate(self._scores)
            if plugin.normalizes and index in self._asked and self.raw(index) is None
        )

    def fixed(self, reads: Reads, rows: Rows) -> IntArray:
        """For each node the sum of weighted scores over plugins that do not normalize and read `reads`, int64 (K,)."""
        total = np.zeros(len(rows), np.int64)
        for index, (plugin, weight) in enumerate(self._scores):
            if plugin.reads is reads and not plugin.normalizes and index in self._asked:
                raw = self.raw(index)
                if raw is not None:
                    total += weight * raw[rows]
        return total

    def bounds_over(self, rows: Rows) -> Bounds:
        """(Least, greatest) raw score over these nodes for each plugin; (0, 0) if the plugin does not normalize."""
        bounds: Bounds = []
        for index, (plugin, _) in enumerate(self._scores):
            raw = self.raw(index)
            if raw is None or not plugin.normalizes or len(rows) == 0:
                bounds.append(_NO_BOUNDS)
            else:
                among = raw[rows]
                bounds.append((int(among.min()), int(among.max())))
        return bounds

    def weighted(self, rows: Rows, bounds: Bounds) -> IntArray:
        """For each node the sum of weight * normalized score over all plugins, int64 (K,). `bounds`: from
        `bounds_over`.
        """
        total = np.zeros(len(rows), np.int64)
        for index, (plugin, weight) in enumerate(self._scores):
            if index in self._asked:
                raw = self.raw(index)
                chosen = np.zeros(len(rows), np.int64) if raw is None else raw[rows]
                total += weight * plugin.normalize(chosen, *bounds[index])
        return total

    def parts(self, rows: list[int], bounds: Bounds) -> list[dict[str, int]]:
        """Return for each node: plugin -> weighted score, normalized by `bounds` (from `bounds_over`)."""
        parts: list[dict[str, int]] = [{} for _ in rows]
        for index, (plugin, weight) in enumerate(self._scores):
            if index not in self._asked:
                continue
            raw = self.raw(index)
            if raw is not None and not plugin.normalizes:
                for part, row in zip(parts, rows, strict=True):
                    part[plugin.name] = weight * raw.item(row)
                continue
            if raw is None:
                score = weight * self._of_zero[index]
                for part in parts:
                    part[plugin.name] = score
                continue
            scores = row_list(plugin.normalize(raw[rows], *bounds[index]))
            for part, score in zip(parts, scores, strict=True):
                part[plugin.name] = weight * score
        return parts

    def part_of(self, row: int, of_group: dict[str, int]) -> dict[str, int]:
        """Plugin -> weighted score for one feasible node, normalized over all feasible nodes. `of_group`: that of its
        group.
        """
        plan = self._plan
        if plan is None:
            plan = self._plan = self._plan_parts()
        part = plan.constant.copy()
        for name, weight, raw in plan.raw:
            part[name] = weight * raw[row]
        part.update(of_group)
        return part

    def _plan_parts(self) -> _PartsPlan:
        constant: dict[str, int] = {}
        raw: list[tuple[str, int, memoryview]] = []
        for index, (plugin, weight) in enumerate(self._scores):
            if index not in self._asked:
                continue
            scores = self.raw(index)
            constant[plugin.name] = weight * self._of_zero[index]
            if scores is not None and not plugin.normalizes:
                raw.append((plugin.name, weight, scores.data))
        return _PartsPlan(constant, raw)

    def raw(self, index: int) -> IntArray | None:
        """Return a plugin's raw scores for all positions, int64 (N,), or None if all are 0."""
        reads = self._scores[index][0].reads
        return (self.shape if reads is Reads.SHAPE else self.load).raw[index]

    def raw_at(self, index: int) -> memoryview:
        """Return a plugin's raw scores as a memory view, for fast access to single nodes. They must not all be 0."""
        reads = self._scores[index][0].reads
        raw = (self.shape if reads is Reads.SHAPE else self.load).raw_at[index]
        assert raw is not None, f"plugin {index} has raw scores"
        return raw
