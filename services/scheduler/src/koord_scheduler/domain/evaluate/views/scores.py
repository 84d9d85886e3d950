"""Weights raw scores and normalizes them over the feasible nodes, in total and per plugin."""

from collections.abc import Container
from typing import Final, NamedTuple

import numpy as np

from koord_scheduler.domain.columns.node_columns import IntArray, Rows, row_list
from koord_scheduler.domain.evaluate.views.answers import RowAnswers
from koord_scheduler.domain.evaluate.views.refusals import FEASIBLE
from koord_scheduler.domain.framework.node_points import Reads
from koord_scheduler.domain.framework.profile import Profile

Bounds = list[tuple[int, int]]
"""Least and greatest raw score of each plugin over the rows by which scores are normalized; (0, 0) if they are not."""
_NO_BOUNDS: Final = (0, 0)
_ONE_ZERO: Final = np.zeros(1, np.int64)


class _PartsPlan(NamedTuple):
    """How the parts of a total are computed, valid until a plugin gets or changes its array of raw scores.

    Attributes:
        constant: Every plugin -> its part if its raw score is 0.
        raw: Name, weight and raw scores of the plugins that have an array.
        normalized: Whether some of these are normalized.
    """

    constant: dict[str, int]
    raw: list[tuple[str, int, memoryview]]
    normalized: bool


class Scores:
    """The raw scores that one class of pods gives to all rows.

    Args:
        profile: The plugins.
        asked: Places of those that concern the pods; the parts of a total do not name the others.

    Attributes:
        shape: Answers of the plugins that read the shape of nodes.
        load: Answers of the plugins that read load.
        bounds: Bounds over all feasible rows; None before the first evaluation.
    """

    def __init__(self, profile: Profile, asked: Container[int]) -> None:
        self._scores = profile.scores
        self._asked = asked
        self._of_zero = [int(plugin.normalize(_ONE_ZERO, *_NO_BOUNDS)[0]) for plugin, _ in profile.scores]
        self._plan: _PartsPlan | None = None
        self.shape = RowAnswers(0, 0)
        self.load = RowAnswers(0, 0)
        self.bounds: Bounds | None = None

    def changed(self) -> None:
        """Drop the plan of the parts, because many rows were evaluated again."""
        self._plan = None

    def is_normalized(self) -> bool:
        """Return whether totals depend on which nodes are feasible."""
        return any(plugin.normalizes and self._raw(index) is not None for index, (plugin, _) in enumerate(self._scores))

    def bounds_now(self) -> Bounds:
        """Return the bounds over all feasible rows."""
        if not self.is_normalized():
            return [_NO_BOUNDS] * len(self._scores)
        return self.bounds_over(np.flatnonzero(self.load.status == FEASIBLE))

    def bounds_over(self, feasible: Rows) -> Bounds:
        """Return the bounds over some rows."""
        bounds: Bounds = []
        for index, (plugin, _) in enumerate(self._scores):
            raw = self._raw(index)
            if raw is None or not plugin.normalizes or len(feasible) == 0:
                bounds.append(_NO_BOUNDS)
            else:
                among = raw[feasible]
                bounds.append((int(among.min()), int(among.max())))
        return bounds

    def weighted(self, reads: Reads, rows: Rows, bounds: Bounds) -> IntArray:
        """Return the sum of weight * normalized score over the plugins that read `reads`, for some rows, int64 (K,)."""
        total = np.zeros(len(rows), np.int64)
        for index, (plugin, weight) in enumerate(self._scores):
            if plugin.reads is reads and index in self._asked:
                raw = self._raw(index)
                chosen = np.zeros(len(rows), np.int64) if raw is None else raw[rows]
                total += weight * plugin.normalize(chosen, *bounds[index])
        return total

    def parts(self, rows: list[int], bounds: Bounds) -> list[dict[str, int]]:
        """Return for each row the weighted score of each plugin, normalized by `bounds`."""
        parts: list[dict[str, int]] = [{} for _ in rows]
        for index, (plugin, weight) in enumerate(self._scores):
            if index not in self._asked:
                continue
            raw = self._raw(index)
            if raw is not None and not plugin.normalizes:
                for part, row in zip(parts, rows, strict=True):
                    part[plugin.name] = weight * raw.item(row)
                continue
            if raw is None and bounds[index] == _NO_BOUNDS:
                score = weight * self._of_zero[index]
                for part in parts:
                    part[plugin.name] = score
                continue
            chosen = _ONE_ZERO if raw is None else raw[rows]
            scores = row_list(plugin.normalize(chosen, *bounds[index])) if plugin.normalizes else row_list(chosen)
            for part, score in zip(parts, scores if raw is not None else scores * len(rows), strict=True):
                part[plugin.name] = weight * score
        return parts

    def parts_among_all(self, rows: list[int]) -> list[dict[str, int]]:
        """Return for each row the weighted score of each plugin, normalized over all feasible rows."""
        assert self.bounds is not None, "the view was never refreshed"
        plan = self._plan
        if plan is None:
            plan = self._plan = self._plan_parts()
        if plan.normalized:
            return self.parts(rows, self.bounds)
        parts: list[dict[str, int]] = []
        for row in rows:
            part = plan.constant.copy()
            for name, weight, raw in plan.raw:
                part[name] = weight * raw[row]
            parts.append(part)
        return parts

    def _plan_parts(self) -> _PartsPlan:
        constant: dict[str, int] = {}
        raw: list[tuple[str, int, memoryview]] = []
        normalized = False
        for index, (plugin, weight) in enumerate(self._scores):
            if index not in self._asked:
                continue
            scores = self._raw(index)
            constant[plugin.name] = weight * self._of_zero[index]
            if scores is not None:
                raw.append((plugin.name, weight, scores.data))
                normalized = normalized or plugin.normalizes
        return _PartsPlan(constant, raw, normalized)

    def _raw(self, index: int) -> IntArray | None:
        """Return the raw scores of a plugin for every row, or None if all are 0."""
        reads = self._scores[index][0].reads
        return (self.shape if reads is Reads.SHAPE else self.load).raw[index]
